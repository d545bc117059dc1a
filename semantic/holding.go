package semantic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// This file has the two composed verbs, WithLock and Hold, written once over the
// elementary ones, so that every implementation of the contracts behaves alike.

// RunWithLock is [DistributedLock.WithLock] over lock's Acquire and Release, with
// clock deciding when validity has ended. lost, which may be nil, is called once, before
// RunWithLock returns, whenever its error holds [ErrLockLost]. For implementations of
// [DistributedLock].
func RunWithLock(ctx context.Context, clock Clock, lock DistributedLock, key string, ttl time.Duration, fn func(context.Context) error, lost func(), opts ...LockOption) (ran bool, err error) {
	if fn == nil {
		return false, &ArgumentError{Operation: "lock.withLock", Argument: "fn", Value: "nil", Allowed: "a function"}
	}
	claim, err := lock.Acquire(ctx, key, ttl, opts...)
	if !claim.Acquired {
		return false, err
	}
	defer lock.Release(ctx, key, claim.Token)
	var once sync.Once
	tell := func() {
		if lost != nil {
			once.Do(lost)
		}
	}
	over := func() bool { return !clock.Now().Before(claim.ValidUntil) }
	if over() { // the answer took longer than the lock lives
		tell()
		return false, fmt.Errorf("lock.withLock %q: %w", key, ErrLockLost)
	}

	work, cancel := context.WithCancelCause(ContextWithFence(ctx, claim.Fence))
	defer cancel(nil)
	stop := clock.AfterFunc(claim.ValidUntil.Sub(clock.Now()), func() {
		cancel(ErrLockLost)
		tell()
	})
	defer func() { // also when fn panics
		if !stop() || over() {
			tell()
			err = withLoss(ErrLockLost, err)
		}
	}()
	return true, fn(work)
}

// withLoss joins loss to fn's error, whatever ended fn's context.
func withLoss(loss, err error) error {
	if !errors.Is(err, loss) {
		return errors.Join(err, loss)
	}
	return err
}

// HoldHooks lets an implementation see and shape what RunHold does; every field may
// be nil.
type HoldHooks struct {
	// Renew refreshes the lease only if it never left holder, and tells whether it
	// did. Without it Claim is used, which cannot see a hold that another holder
	// interrupted and gave up again.
	Renew       func(ctx context.Context) (bool, error)
	RenewFailed func(err error) // a renewal failed and will be tried again
	// Lost is called once, before RunHold returns, whenever its error holds
	// [ErrLeaseLost]; err is the last failed renewal's, nil when the lease went to another
	// holder or none was tried.
	Lost func(err error)
}

// RunHold is [ResourceLease.Hold] over lease's Claim and Release, with clock deciding
// when to renew and when the local deadline has passed. For implementations of
// [ResourceLease].
func RunHold(ctx context.Context, clock Clock, lease ResourceLease, key, holder string, ttl time.Duration, fn func(context.Context) error, hooks HoldHooks) (held bool, err error) {
	if fn == nil {
		return false, &ArgumentError{Operation: "lease.hold", Argument: "fn", Value: "nil", Allowed: "a function"}
	}
	sent := clock.Now()
	held, err = lease.Claim(ctx, key, holder, ttl)
	if !held {
		return false, err
	}
	// Released last of all, on every way out of fn.
	defer lease.Release(context.WithoutCancel(ctx), key, holder)

	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	renew := hooks.Renew
	if renew == nil {
		renew = func(ctx context.Context) (bool, error) { return lease.Claim(ctx, key, holder, ttl) }
	}
	k := &keeper{
		clock: clock, ttl: ttl, renewOnce: renew, hooks: hooks,
		cancel: cancel, deadline: SafeUntil(sent, ttl),
	}
	if k.over() { // the answer took longer than the lease lives
		k.tell(nil)
		return false, fmt.Errorf("lease.hold %q: %w", key, ErrLeaseLost)
	}
	// Renewals go on while fn winds down after a cancel: the lease is not free
	// before the work has ended.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	k.start(renewing)
	defer func() { // also when fn panics
		stopRenewing()
		if k.wait() {
			err = withLoss(ErrLeaseLost, err)
		}
	}()
	return true, fn(work)
}

// SafeUntil is the local instant until which a claim sent at sent for ttl may be
// relied on: one percent earlier than ttl, for clocks that run at different rates.
func SafeUntil(sent time.Time, ttl time.Duration) time.Time { return sent.Add(ttl - ttl/100) }

// keeper renews one held lease until it is stopped or lost.
type keeper struct {
	clock     Clock
	ttl       time.Duration
	renewOnce func(ctx context.Context) (bool, error)
	hooks     HoldHooks
	cancel    context.CancelCauseFunc

	mu       sync.Mutex
	deadline time.Time
	lastErr  error
	done     bool
	lost     bool
	stopTick func() bool
	stopLoss func() bool
	renewals sync.WaitGroup
	told     sync.Once
}

func (k *keeper) start(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armLoss()
	k.armTick(ctx, k.ttl/3)
}

// over tells whether the lease cannot be relied on any more.
func (k *keeper) over() bool { return !k.clock.Now().Before(k.deadline) }

// wait ends the renewals, tells whether the lease was lost until now, and returns when
// the last renewal and the hook of a loss have.
func (k *keeper) wait() (lost bool) {
	k.mu.Lock()
	k.lost = k.lost || k.over()
	k.finish()
	lost, err := k.lost, k.lastErr
	k.mu.Unlock()
	k.renewals.Wait()
	if lost {
		k.tell(err)
	}
	return lost
}

// tell runs the hook of a loss, once; it returns when that has.
func (k *keeper) tell(err error) {
	if k.hooks.Lost != nil {
		k.told.Do(func() { k.hooks.Lost(err) })
	}
}

func (k *keeper) finish() {
	k.done = true
	k.stopTick()
	k.stopLoss()
}

// armLoss cancels the work at the deadline, whatever a renewal in flight does.
func (k *keeper) armLoss() {
	k.stopLoss = k.clock.AfterFunc(k.deadline.Sub(k.clock.Now()), func() {
		k.mu.Lock()
		if k.done || k.clock.Now().Before(k.deadline) {
			k.mu.Unlock()
			return
		}
		k.lose()
	})
}

// lose ends the hold; it is called with the mutex held and releases it.
func (k *keeper) lose() {
	k.lost = true
	k.finish()
	err := k.lastErr
	k.mu.Unlock()
	k.cancel(ErrLeaseLost)
	k.tell(err)
}

func (k *keeper) armTick(ctx context.Context, d time.Duration) {
	k.stopTick = k.clock.AfterFunc(d, func() {
		k.mu.Lock()
		if k.done {
			k.mu.Unlock()
			return
		}
		k.renewals.Add(1)
		k.mu.Unlock()
		defer k.renewals.Done()
		k.renew(ctx)
	})
}

// minRenewal is the least time one renewal is given, however short the ttl.
const minRenewal = 10 * time.Millisecond

func (k *keeper) renew(ctx context.Context) {
	sent := k.clock.Now()
	try, cancel := context.WithTimeout(ctx, max(k.ttl/3, minRenewal))
	ok, err := k.renewOnce(try)
	cancel()

	k.mu.Lock()
	if k.done {
		k.mu.Unlock()
		return
	}
	switch {
	case ok:
		k.stopLoss()
		k.deadline, k.lastErr = SafeUntil(sent, k.ttl), nil
		k.armLoss()
		k.armTick(ctx, k.ttl/3)
	case err == nil: // another holder has it
		k.lastErr = nil
		k.lose()
		return
	default:
		k.lastErr = err
		k.armTick(ctx, k.ttl/12)
		if k.hooks.RenewFailed != nil {
			defer k.hooks.RenewFailed(err)
		}
	}
	k.mu.Unlock()
}
