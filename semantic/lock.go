package semantic

import (
	"context"
	"time"
)

// DistributedLock is a claim that one holder in the cluster has for at most a TTL:
// the gate of a cron tick or of any small, bounded piece of work.
//
// A TTL lock saves work; it does not make work safe. A holder that pauses past its
// TTL runs beside its successor. Where that would be wrong, pass the [Fence] to the
// resource and let the resource refuse older ones.
//
// Safe for concurrent use. Every method returns [ErrClosed] after close.
type DistributedLock interface {
	// Acquire tries to take key for ttl. It costs one round trip and does not
	// block on contention unless [WithWait] is given.
	//
	// Contention is not an error: Acquired is false, Reason is [ReasonContended]
	// and err is nil. When the backend cannot say, Reason is [ReasonUnavailable]
	// and err is the cause, matching [ErrUnavailable] (nothing was applied) or
	// [ErrUnknown] (a try may have been applied; the key is then freed by a
	// compensating release or by its TTL). A call that was already contended when its
	// context ended keeps Reason CONTENDED beside the context's error.
	// Arguments out of range give [ErrInvalidArgument] before any I/O. A key that
	// something else wrote gives [ErrWrongType] with Reason UNAVAILABLE.
	//
	// A lost reply never reports the caller's own lock as contended.
	Acquire(ctx context.Context, key string, ttl time.Duration, opts ...LockOption) (LockClaim, error)

	// Release frees key if token still holds it. Best effort: it never fails,
	// never panics, ignores ctx's cancellation and blocks for at most about a second; what it
	// cannot free, the TTL frees. One round trip.
	Release(ctx context.Context, key, token string)

	// WithLock runs fn while holding key, and releases on a context of its own
	// after fn returned or panicked. fn's context ends when the claim's validity
	// ends, with cause [ErrLockLost]; it carries the fence ([FenceFromContext]).
	//
	// ran is false when the lock was not taken: err is then nil when it was
	// contended, and the cause when the backend could not say. When ran is true,
	// err is fn's error, joined with ErrLockLost if validity ended before fn
	// returned. The lock is never renewed: long work belongs to [ResourceLease.Hold].
	WithLock(ctx context.Context, key string, ttl time.Duration, fn func(context.Context) error, opts ...LockOption) (ran bool, err error)
}

// LockClaim is the result of an Acquire.
type LockClaim struct {
	// Acquired tells whether the caller holds the lock.
	Acquired bool
	// Token proves ownership to Release. Set when Acquired.
	Token string
	// Fence is greater than that of every earlier holder of the key. Set when
	// Acquired, unless [WithoutFence] was asked for.
	Fence Fence
	// ValidUntil is when the holder must stop relying on the lock: the local
	// monotonic instant before the send, plus ttl, less one percent for clocks
	// that run at different rates. Set when Acquired.
	ValidUntil time.Time
	// Reason says why not. Set when not Acquired.
	Reason LockUnavailabilityReason
	// RetryAfter is the remaining TTL of the present holder, zero if not known.
	// Set when Reason is CONTENDED.
	RetryAfter time.Duration
}

// LockUnavailabilityReason says why a lock was not acquired.
type LockUnavailabilityReason string

const (
	// ReasonContended: another holder has the lock. The steady state of a gate.
	ReasonContended LockUnavailabilityReason = "CONTENDED"
	// ReasonUnavailable: the backend could not say. An incident.
	ReasonUnavailable LockUnavailabilityReason = "UNAVAILABLE"
)

// Fence is a number that grows with every new holder of a key, also across expiry.
// A resource that remembers the greatest fence it has seen can refuse the late write
// of a former holder.
type Fence int64

// LockOptions are the resolved options of an Acquire; see [ResolveLockOptions].
type LockOptions struct {
	Wait         time.Duration // how long to wait for a contended lock; 0: do not
	MinHold      time.Duration // earliest instant after acquiring at which the key is free again
	WithoutFence bool          // spend no counter on this key
}

// LockOption changes one Acquire or WithLock.
type LockOption func(*LockOptions)

// WithWait lets Acquire wait up to d for a contended lock. The wait is woken by the
// release and falls back to polling about once a second. d and ttl are different
// things: ttl is how long the lock may be held.
func WithWait(d time.Duration) LockOption { return func(o *LockOptions) { o.Wait = d } }

// WithMinHold keeps the key taken for at least d after it was acquired, however
// early Release is called: the guard against replicas whose clocks differ. d may
// not exceed ttl.
func WithMinHold(d time.Duration) LockOption { return func(o *LockOptions) { o.MinHold = d } }

// WithoutFence leaves [LockClaim.Fence] zero and keeps no counter for the key: for
// keys that are used once, such as the instant of a tick.
func WithoutFence() LockOption { return func(o *LockOptions) { o.WithoutFence = true } }

// ResolveLockOptions applies opts and checks them against ttl. It returns an
// [*ArgumentError] for a nil option, a negative wait or a minimum hold outside 0 to ttl.
// For implementations of [DistributedLock].
func ResolveLockOptions(operation string, ttl time.Duration, opts ...LockOption) (LockOptions, error) {
	if len(opts) == 0 {
		return LockOptions{}, nil
	}
	var o LockOptions
	if err := applyOptions(operation, &o, opts); err != nil {
		return o, err
	}
	if o.Wait < 0 || o.Wait > MaxTTL {
		return o, &ArgumentError{Operation: operation, Argument: "wait", Value: o.Wait, Allowed: "0 to " + MaxTTL.String()}
	}
	if o.MinHold < 0 || o.MinHold > ttl {
		return o, &ArgumentError{Operation: operation, Argument: "minHold", Value: o.MinHold, Allowed: "0 to the ttl, " + ttl.String()}
	}
	return o, nil
}

type fenceKey struct{}

// ContextWithFence returns a context that carries f.
func ContextWithFence(ctx context.Context, f Fence) context.Context {
	return context.WithValue(ctx, fenceKey{}, f)
}

// FenceFromContext returns the fence of the [DistributedLock.WithLock] that ctx
// belongs to, and whether there is one.
func FenceFromContext(ctx context.Context) (Fence, bool) {
	f, ok := ctx.Value(fenceKey{}).(Fence)
	return f, ok
}
