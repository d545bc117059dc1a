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

// Whoever gets ErrLeaseLost finds its loss told by then, once: also when nothing was run,
// and when the work ended before its keeper woke up.
func TestALostLeaseIsToldBeforeHoldReturns(t *testing.T) {
	for name, past := range map[string]time.Duration{"before the work": time.Hour, "during the work": 0} {
		t.Run(name, func(t *testing.T) {
			clock := testkit.NewClock()
			lease := leaseUntil(clock.Now().Add(30*time.Second - past))
			waits, told := deaf{clock, make(chan struct{}, 1)}, 0
			k := operation.Keeper{
				Coordinator: &renewals{clock: clock}, Clock: waits,
				Lost: func(operation.Lease, error) { told++ },
			}
			err := k.Hold(t.Context(), lease, func(context.Context) error {
				<-waits.begun
				clock.Advance(time.Minute)
				return nil
			})
			if !errors.Is(err, operation.ErrLeaseLost) || told != 1 {
				t.Errorf("%v, told %d times, want ErrLeaseLost, once", err, told)
			}
		})
	}
}

// deaf is a clock whose timers never go off: as on a machine that is too busy to run
// them before the work has ended.
type deaf struct {
	*testkit.Clock
	begun chan struct{}
}

func (d deaf) AfterFunc(time.Duration, func()) func() bool {
	d.begun <- struct{}{}
	return func() bool { return true }
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
