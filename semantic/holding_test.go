package semantic_test

import (
	"context"
	"errors"
	"sync/atomic"
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

// slowLease answers only after its leases have expired.
type slowLease struct {
	*testkit.ResourceLease
	clock *testkit.Clock
}

func (l slowLease) Claim(ctx context.Context, key, holder string, ttl time.Duration) (bool, error) {
	held, err := l.ResourceLease.Claim(ctx, key, holder, ttl)
	l.clock.Advance(ttl)
	return held, err
}

func TestWorkDoesNotBeginUnderALockThatHasEnded(t *testing.T) {
	clock := testkit.NewClock()
	ran, err := semantic.RunWithLock(t.Context(), clock, slowLock{testkit.NewDistributedLock(clock), clock}, "k", time.Second,
		func(context.Context) error { t.Error("the work ran"); return nil }, nil)
	if ran || !errors.Is(err, semantic.ErrLockLost) {
		t.Errorf("%v, %v, want false, ErrLockLost", ran, err)
	}
}

// deaf is a clock whose timers never go off: as on a machine that is too busy to run
// them before the work has ended.
type deaf struct{ *testkit.Clock }

func (deaf) AfterFunc(time.Duration, func()) func() bool { return func() bool { return true } }

// losses counts the calls of a hook that takes its time.
type losses struct{ told atomic.Int32 }

func (l *losses) hook() {
	<-time.After(20 * time.Millisecond)
	l.told.Add(1)
}

// Whoever gets ErrLockLost or ErrLeaseLost finds its loss told, once, by then: with the
// timer's goroutine slower than the caller, or not run at all, or with nothing run.
func TestALossIsToldOnceBeforeTheCallerHearsOfIt(t *testing.T) {
	untilItEnds := func(clock *testkit.Clock) func(context.Context) error {
		return func(ctx context.Context) error {
			go clock.Advance(time.Second)
			<-ctx.Done()
			return nil
		}
	}
	panicking := func(clock *testkit.Clock) func(context.Context) error {
		return func(context.Context) error { clock.Advance(time.Second); panic("no") }
	}
	for name, row := range map[string]struct {
		busy, late bool
		fn         func(*testkit.Clock) func(context.Context) error
	}{
		"the work waits for its end": {fn: untilItEnds},
		"the timer never goes off": {busy: true, fn: func(c *testkit.Clock) func(context.Context) error {
			return func(context.Context) error { c.Advance(time.Second); return nil }
		}},
		"the answer comes too late":      {late: true, fn: untilItEnds},
		"the work panics":                {fn: panicking},
		"the work panics, with no timer": {busy: true, fn: panicking},
	} {
		t.Run("lock: "+name, func(t *testing.T) {
			backend := testkit.NewClock()
			var clock semantic.Clock = backend
			if row.busy {
				clock = deaf{backend}
			}
			var lock semantic.DistributedLock = testkit.NewDistributedLock(backend)
			if row.late {
				lock = slowLock{testkit.NewDistributedLock(backend), backend}
			}
			var l losses
			var err error
			func() {
				defer func() {
					if recover() != nil {
						err = semantic.ErrLockLost // nobody can hear it
					}
				}()
				_, err = semantic.RunWithLock(t.Context(), clock, lock, "k", time.Second, row.fn(backend), l.hook)
			}()
			if told := l.told.Load(); told != 1 || !errors.Is(err, semantic.ErrLockLost) {
				t.Errorf("told %d times, %v, want once, ErrLockLost", told, err)
			}
		})
		t.Run("lease: "+name, func(t *testing.T) {
			backend := testkit.NewClock()
			var clock semantic.Clock = backend
			if row.busy {
				clock = deaf{backend}
			}
			var lease semantic.ResourceLease = testkit.NewResourceLease(backend)
			if row.late {
				lease = slowLease{testkit.NewResourceLease(backend), backend}
			}
			var l losses
			var err error
			func() {
				defer func() {
					if recover() != nil {
						err = semantic.ErrLeaseLost
					}
				}()
				_, err = semantic.RunHold(t.Context(), clock, lease, "k", "me", time.Second, row.fn(backend), semantic.HoldHooks{
					Renew: func(context.Context) (bool, error) { return false, semantic.ErrUnavailable },
					Lost:  func(error) { l.hook() },
				})
			}()
			if told := l.told.Load(); told != 1 || !errors.Is(err, semantic.ErrLeaseLost) {
				t.Errorf("told %d times, %v, want once, ErrLeaseLost", told, err)
			}
		})
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
