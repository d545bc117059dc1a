package semantic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// TestANilOptionIsRefusedByItsPlace: it is an argument error like any other, no panic.
func TestANilOptionIsRefusedByItsPlace(t *testing.T) {
	handler := func(context.Context, semantic.Message) {}
	for name, resolve := range map[string]func() error{
		"lock": func() error {
			_, err := semantic.ResolveLockOptions("lock.acquire", time.Second, semantic.WithoutFence(), nil)
			return err
		},
		"fetch": func() error {
			_, err := semantic.ResolveFetchOptions("cache.get_or_fetch", semantic.WithClusterGuard(time.Second), nil)
			return err
		},
		"subscribe": func() error {
			_, err := semantic.ResolveSubscribeOptions("broadcast.subscribe", "c", handler, semantic.WithQueue(1), nil)
			return err
		},
	} {
		var refused *semantic.ArgumentError
		if err := resolve(); !errors.As(err, &refused) || refused.Argument != "opts[1]" {
			t.Errorf("%s: %v, want an ArgumentError that names opts[1]", name, err)
		}
	}
}
