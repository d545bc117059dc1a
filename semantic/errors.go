package semantic

import (
	"errors"
	"fmt"
)

// The sentinel errors of every contract. Match them with [errors.Is]; the typed
// errors below carry the details.
var (
	// ErrInvalidArgument marks a call refused before any I/O because an argument
	// is out of range. The error is an [*ArgumentError].
	ErrInvalidArgument = errors.New("invalid argument")

	// ErrUnavailable marks a call that provably applied nothing: the backend could
	// not be reached, or it refused the command. Repeating the call is safe.
	ErrUnavailable = errors.New("backend unavailable, nothing was applied")

	// ErrUnknown marks a call that may have been applied: the command was sent and
	// its reply was lost. Repeating it is safe only where the contract says so.
	ErrUnknown = errors.New("outcome unknown, the call may have been applied")

	// ErrClosed is returned by every method of a service after it was closed.
	ErrClosed = errors.New("service is closed")

	// ErrWrongType marks a key that holds something this primitive did not write.
	// It is a misuse of the namespace, never contention and never a cache miss.
	ErrWrongType = errors.New("key holds a value of another kind")

	// ErrCorrupt marks a stored value or a reply that cannot be decoded.
	ErrCorrupt = errors.New("stored value cannot be decoded")

	// ErrLockLost is the cause of a [DistributedLock.WithLock] context that ended
	// because the lock's validity ended.
	ErrLockLost = errors.New("lock is no longer held")

	// ErrLeaseLost is the cause of a [ResourceLease.Hold] context that ended
	// because the lease could not be renewed or went to another holder.
	ErrLeaseLost = errors.New("lease is no longer held")

	// ErrSuperseded refuses an [IdempotencyLog.Finalize] of an attempt that is no
	// longer the current one. Nothing was written.
	ErrSuperseded = errors.New("attempt was superseded")

	// ErrTooLarge refuses a payload above the configured size before any I/O.
	ErrTooLarge = errors.New("payload is too large")
)

// Outcome says what is known of a remote call that did not simply succeed.
type Outcome string

const (
	// OutcomeUnavailable: provably nothing was applied.
	OutcomeUnavailable Outcome = "UNAVAILABLE"
	// OutcomeUnknown: the call may have been applied.
	OutcomeUnknown Outcome = "UNKNOWN"
)

// OutcomeError is a remote call that failed: which operation on which key, what is
// known of its effect, and why. It matches [ErrUnavailable] or [ErrUnknown] with
// [errors.Is], and its cause with [errors.Is] and [errors.As]: a call ended by its
// context also matches that context's error.
type OutcomeError struct {
	Operation string  // for example "lock.acquire"
	Key       string  // the caller's key, without namespace
	Outcome   Outcome // what is known of the effect
	Cause     error   // why, never nil
}

// Error names operation, key, outcome and cause.
func (e *OutcomeError) Error() string {
	return fmt.Sprintf("%s %q: %v: %v", e.Operation, e.Key, e.sentinel(), e.Cause)
}

// Unwrap gives the sentinel of the outcome and the cause to errors.Is and errors.As.
func (e *OutcomeError) Unwrap() []error { return []error{e.sentinel(), e.Cause} }

func (e *OutcomeError) sentinel() error {
	if e.Outcome == OutcomeUnavailable {
		return ErrUnavailable
	}
	return ErrUnknown
}

// ArgumentError is a call refused before any I/O. It matches [ErrInvalidArgument].
type ArgumentError struct {
	Operation string // for example "lock.acquire"
	Argument  string // the argument's name in the contract
	Value     any    // what was given; long strings are cut
	Allowed   string // what would have been accepted
}

// Error names the argument, its value and what is allowed.
func (e *ArgumentError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("%s: %s %q: want %s", e.Operation, e.Argument, s, e.Allowed)
	}
	return fmt.Sprintf("%s: %s %v: want %s", e.Operation, e.Argument, e.Value, e.Allowed)
}

// Unwrap makes the error match ErrInvalidArgument.
func (e *ArgumentError) Unwrap() error { return ErrInvalidArgument }
