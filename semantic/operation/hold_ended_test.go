package operation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func TestHoldRunsNothingUnderALeaseThatHasEnded(t *testing.T) {
	lease := leaseUntil(time.Now().Add(-time.Hour))
	err := operation.Hold(t.Context(), testkit.NewOperationCoordinator(nil), lease, func(context.Context) error {
		t.Error("the work ran")
		return nil
	})
	if !errors.Is(err, operation.ErrLeaseLost) {
		t.Errorf("%v, want ErrLeaseLost", err)
	}
}

func TestHoldRefusesNoCoordinator(t *testing.T) {
	err := operation.Hold(t.Context(), nil, operation.Lease{}, func(context.Context) error { return nil })
	if !errors.Is(err, operation.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

func TestHoldRefusesANilCoordinatorOrContextByName(t *testing.T) {
	lease := leaseUntil(time.Now().Add(time.Second))
	work := func(context.Context) error { t.Error("the work ran"); return nil }
	var noContext context.Context
	var typedNil *renewals
	for argument, err := range map[string]error{
		"coordinator: want one that is not nil": operation.Hold(t.Context(), nil, lease, work),
		"coordinator: want one that":            operation.Hold(t.Context(), typedNil, lease, work),
		"ctx":                                   operation.Hold(noContext, &renewals{}, lease, work),
		"fn":                                    operation.Hold(t.Context(), &renewals{}, lease, nil),
	} {
		if !errors.Is(err, operation.ErrInvalid) || !strings.Contains(err.Error(), argument) {
			t.Errorf("%v, want ErrInvalid that names %s", err, argument)
		}
	}
}
