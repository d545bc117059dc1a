package operation

import (
	"errors"
	"fmt"
)

// The classes of failure. Match them with [errors.Is]; the typed errors below carry
// the details.
var (
	// ErrUnavailable: nothing was applied, since the command was never dispatched or
	// only reads. Retry with the same identity.
	ErrUnavailable = errors.New("unavailable, nothing was applied")
	// ErrUnknown: the command may have been applied. Reconcile the database and the
	// provider before another business action.
	ErrUnknown = errors.New("outcome unknown, it may have been applied")
	// ErrRejected: the backend refused the command and wrote nothing.
	ErrRejected = errors.New("rejected, nothing was written")
	// ErrInvalid: an argument is out of bounds; nothing was sent.
	ErrInvalid = errors.New("invalid argument")
	// ErrLeaseLost is the cause of a [Hold] context that ended because the lease did.
	ErrLeaseLost = errors.New("operation lease is no longer held")
	// ErrClosed: the coordinator was closed. Its errors match ErrUnavailable too.
	ErrClosed = errors.New("coordinator is closed")
)

// UnavailableError is a command that was never dispatched, or a ReadStatus without an
// answer: the backend could not be reached, the queue was full or too slow, or the
// context had ended. It matches [ErrUnavailable] and its cause.
type UnavailableError struct {
	Command string // "begin", "renew", "complete", "abandon" or "readStatus"
	Cause   error  // never nil
}

// Error names the command and the cause.
func (e *UnavailableError) Error() string { return describe(e.Command, ErrUnavailable, e.Cause) }

// Unwrap gives the class and the cause to errors.Is and errors.As.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Cause} }

// UnknownError is a command that may have been applied. It matches [ErrUnknown] and
// its cause.
type UnknownError struct {
	Command string
	// Token is the attempt's identity, for a Begin [WithToken] that finds out.
	Token Token
	Cause error // never nil
}

// Error names the command and the cause, not the token.
func (e *UnknownError) Error() string { return describe(e.Command, ErrUnknown, e.Cause) }

// Unwrap gives the class and the cause to errors.Is and errors.As.
func (e *UnknownError) Unwrap() []error { return []error{ErrUnknown, e.Cause} }

// RejectedError is a command that the backend refused without writing anything. It
// matches [ErrRejected] and its cause.
type RejectedError struct {
	Command string
	// Code is the backend's word for it: READONLY (not the primary any more), OOM,
	// NOREPLICAS, LOADING, INVALID_RECORD (the key holds something else), …
	Code  string
	Cause error // never nil
}

// Error names the command, the code and the cause.
func (e *RejectedError) Error() string {
	return describe(e.Command, ErrRejected, fmt.Errorf("%s: %w", e.Code, e.Cause))
}

// Unwrap gives the class and the cause to errors.Is and errors.As.
func (e *RejectedError) Unwrap() []error { return []error{ErrRejected, e.Cause} }

// InvalidError is an argument out of bounds. It matches [ErrInvalid]. It does not show
// the value, which may be personal or secret.
type InvalidError struct {
	Argument string // the argument's name in the contract
	Allowed  string // what would have been accepted
}

// Error names the argument and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("operation: %s: want %s", e.Argument, e.Allowed)
}

// Unwrap makes the error match ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

func describe(command string, class, cause error) string {
	return fmt.Sprintf("operation.%s: %v: %v", command, class, cause)
}
