package semantic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// slowLock answers only after its locks have expired.
type slowLock struct {
	*testkit.DistributedLock
	clock *testkit.Clock
}

func (l slowLock) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
	claim, err := l.DistributedLock.Acquire(ctx, key, ttl, opts...)
	l.clock.Advance(ttl)
	return claim, err
}

func TestWorkDoesNotBeginUnderALockThatHasEnded(t *testing.T) {
	clock := testkit.NewClock()
	ran, err := semantic.RunWithLock(t.Context(), clock, slowLock{testkit.NewDistributedLock(clock), clock}, "k", time.Second,
		func(context.Context) error { t.Error("the work ran"); return nil }, nil)
	if ran || !errors.Is(err, semantic.ErrLockLost) {
		t.Errorf("%v, %v, want false, ErrLockLost", ran, err)
	}
}

// A loss is told also when the caller's context had ended before.
func TestALossIsToldAlthoughTheCallerHadLeft(t *testing.T) {
	clock := testkit.NewClock()
	lock, lease := testkit.NewDistributedLock(clock), testkit.NewResourceLease(clock)
	ctx, cancel := context.WithCancel(t.Context())
	ran, err := lock.WithLock(ctx, "k", time.Second, func(context.Context) error {
		cancel()
		clock.Advance(time.Second)
		return nil
	})
	if !ran || !errors.Is(err, semantic.ErrLockLost) {
		t.Errorf("WithLock: %v, %v, want true, ErrLockLost", ran, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	held, err := lease.Hold(ctx, "k", "me", time.Second, func(context.Context) error {
		cancel()
		defer lease.Backend().Inject(testkit.FaultDown)()
		clock.Advance(time.Second)
		return nil
	})
	if !held || !errors.Is(err, semantic.ErrLeaseLost) {
		t.Errorf("Hold: %v, %v, want true, ErrLeaseLost", held, err)
	}
}
