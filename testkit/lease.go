package testkit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// LeaseBackend is the memory that the clients of a [ResourceLease] double share. Safe
// for concurrent use.
type LeaseBackend struct {
	injector
	clock semantic.Clock

	mu     sync.Mutex
	leases map[string]leased
}

type leased struct {
	holder  string
	expires time.Time
}

// NewLeaseBackend returns an empty backend; a nil clock is the system's.
func NewLeaseBackend(clock semantic.Clock) *LeaseBackend {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &LeaseBackend{clock: clock, leases: map[string]leased{}}
}

// Client returns the lease as one replica has it.
func (b *LeaseBackend) Client() *ResourceLease { return &ResourceLease{backend: b} }

// Holder returns who has key, "" for nobody. It is for assertions and takes nothing.
func (b *LeaseBackend) Holder(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live(key)
}

// live returns the unexpired holder of key; the mutex is held.
func (b *LeaseBackend) live(key string) string {
	l, ok := b.leases[key]
	if !ok || !b.clock.Now().Before(l.expires) {
		delete(b.leases, key)
		return ""
	}
	return l.holder
}

// swap gives key to holder where allowed says so of the present one, and returns that.
func (b *LeaseBackend) swap(key, holder string, ttl time.Duration, allowed func(present string) bool) (present string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	present = b.live(key)
	if !allowed(present) {
		return present, false
	}
	b.leases[key] = leased{holder, b.clock.Now().Add(ttl)}
	return present, true
}

func (b *LeaseBackend) remove(key, holder string) (present string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	present = b.live(key)
	if present == holder {
		delete(b.leases, key)
	}
	return present
}

// ResourceLease is an in-memory [semantic.ResourceLease].
type ResourceLease struct {
	backend *LeaseBackend
	closed  atomic.Bool
}

var _ semantic.ResourceLease = (*ResourceLease)(nil)

// NewResourceLease returns the only client of a backend of its own; a nil clock is
// the system's.
func NewResourceLease(clock semantic.Clock) *ResourceLease { return NewLeaseBackend(clock).Client() }

// Backend returns what the client's leases are kept in.
func (l *ResourceLease) Backend() *LeaseBackend { return l.backend }

// Close makes every later call return [semantic.ErrClosed].
func (l *ResourceLease) Close() { l.closed.Store(true) }

// request checks the arguments and meets the injected faults.
func (l *ResourceLease) request(ctx context.Context, op, key, holder string) error {
	if err := semantic.ValidateName(op, "key", key); err != nil {
		return err
	}
	if err := semantic.ValidateName(op, "holder", holder); err != nil {
		return err
	}
	if l.closed.Load() {
		return fmt.Errorf("%s %q: %w", op, key, semantic.ErrClosed)
	}
	return l.backend.before(ctx, op, key)
}

func (l *ResourceLease) take(ctx context.Context, op, key, holder string, ttl time.Duration, allowed func(present string) bool) (present string, ok bool, err error) {
	if err := semantic.ValidateDuration(op, "ttl", ttl); err != nil {
		return "", false, err
	}
	if err := l.request(ctx, op, key, holder); err != nil {
		return "", false, err
	}
	present, ok = l.backend.swap(key, holder, ttl, allowed)
	if lost, resolvable := l.backend.replyLost(); lost && !resolvable {
		return "", false, unknown(op, key)
	}
	return present, ok, nil
}

// Claim implements [semantic.ResourceLease].
func (l *ResourceLease) Claim(ctx context.Context, key, holder string, ttl time.Duration) (bool, error) {
	_, ok, err := l.take(ctx, "lease.claim", key, holder, ttl, func(present string) bool {
		return present == "" || present == holder
	})
	return ok, err
}

// TakeOver implements [semantic.ResourceLease].
func (l *ResourceLease) TakeOver(ctx context.Context, key, holder string, ttl time.Duration) (previous string, err error) {
	previous, _, err = l.take(ctx, "lease.takeOver", key, holder, ttl, func(string) bool { return true })
	return previous, err
}

// Release implements [semantic.ResourceLease].
func (l *ResourceLease) Release(ctx context.Context, key, holder string) semantic.RemoveResult {
	const op = "lease.release"
	unavailable := func(err error) semantic.RemoveResult {
		return semantic.RemoveResult{Reason: semantic.ReasonRedisUnavailable, Err: err}
	}
	if err := l.request(ctx, op, key, holder); err != nil {
		return unavailable(err)
	}
	present := l.backend.remove(key, holder)
	if lost, resolvable := l.backend.replyLost(); lost && !resolvable {
		return unavailable(unknown(op, key))
	}
	switch present {
	case holder:
		return semantic.RemoveResult{Removed: true, Holder: holder}
	case "":
		return semantic.RemoveResult{Reason: semantic.ReasonNoHolder}
	default:
		return semantic.RemoveResult{Reason: semantic.ReasonReclaimed, Holder: present}
	}
}

// Hold implements [semantic.ResourceLease].
func (l *ResourceLease) Hold(ctx context.Context, key, holder string, ttl time.Duration, fn func(context.Context) error) (held bool, err error) {
	return semantic.RunHold(ctx, l.backend.clock, l, key, holder, ttl, fn, semantic.HoldHooks{
		Renew: func(ctx context.Context) (bool, error) {
			_, ok, err := l.take(ctx, "lease.renew", key, holder, ttl, func(present string) bool { return present == holder })
			return ok, err
		},
	})
}
