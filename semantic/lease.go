package semantic

import (
	"context"
	"time"
)

// ResourceLease is a long-lived claim by a named holder that learns on release
// whether it still owned the resource: session ownership with handoff, a partition,
// a migration run.
//
// Safe for concurrent use. Every method returns [ErrClosed] after close (Release in
// [RemoveResult.Err]).
type ResourceLease interface {
	// Claim takes key for holder, or refreshes the ttl when holder has it already.
	// It returns false, nil while another holder has it. One round trip. Errors
	// match [ErrUnavailable], [ErrUnknown] or [ErrInvalidArgument].
	Claim(ctx context.Context, key, holder string, ttl time.Duration) (bool, error)

	// TakeOver hands key to holder at once, whoever has it, and returns the
	// previous holder: "" when there was none, holder itself when it was refreshed.
	// One round trip. Errors as for Claim.
	TakeOver(ctx context.Context, key, holder string, ttl time.Duration) (previous string, err error)

	// Release gives key up and tells truthfully whether holder still owned it, also
	// when the reply of its first try was lost. One round trip, two after a lost
	// reply. It never panics; failures are in the result.
	Release(ctx context.Context, key, holder string) RemoveResult

	// Hold claims key and runs fn, renewing at a third of ttl. Failed renewals are
	// tolerated until the local deadline; then, before the server can expire the
	// key, fn's context is cancelled with cause [ErrLeaseLost]. On exit the order
	// is: cancel, wait for fn, release.
	//
	// held is false when the lease was not taken: err is nil when another holder
	// has it, else the cause. When held is true, err is fn's error, joined with
	// ErrLeaseLost if the lease was lost before fn returned.
	Hold(ctx context.Context, key, holder string, ttl time.Duration, fn func(context.Context) error) (held bool, err error)
}

// RemoveResult is what a Release found.
type RemoveResult struct {
	// Removed tells whether holder still owned the lease, and so gave it up.
	Removed bool
	// Holder is the releasing holder when Removed, the present one when RECLAIMED.
	Holder string
	// Reason says why nothing was removed.
	Reason RemoveResultReason
	// Err is the cause of REDIS_UNAVAILABLE: [ErrUnavailable], [ErrUnknown],
	// [ErrClosed], [ErrInvalidArgument] or the context's error.
	Err error
}

// RemoveResultReason says why a Release removed nothing.
type RemoveResultReason string

const (
	// ReasonReclaimed: another holder has the lease now.
	ReasonReclaimed RemoveResultReason = "RECLAIMED"
	// ReasonNoHolder: nobody has it; it expired or was released before.
	ReasonNoHolder RemoveResultReason = "NO_HOLDER"
	// ReasonRedisUnavailable: it could not be found out. Treat it as not owned.
	ReasonRedisUnavailable RemoveResultReason = "REDIS_UNAVAILABLE"
)
