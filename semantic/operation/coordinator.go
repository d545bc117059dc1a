package operation

import (
	"context"
	"fmt"
	"time"
)

// Coordinator decides who may work on one durable operation. All callers that handle
// the same operation must use the same authoritative backend and database.
//
// Every method checks its arguments, the context and the options among them, before any
// I/O ([ErrInvalid]), and is bounded by its context and by the coordinator's command
// deadline. The errors say what is known:
//
//   - [ErrUnavailable]: never dispatched. Retry with the same identity.
//   - [ErrRejected]: the backend refused it and wrote nothing. Retry when it is healthy.
//   - [ErrUnknown]: it may have been applied. Reconcile before another business action.
//
// Safe for concurrent use. After close every method returns [ErrClosed], which also
// matches ErrUnavailable.
type Coordinator interface {
	// Begin asks to work on id. One round trip, and one more when the first one's
	// reply was lost: the coordinator then recognises its own attempt by its token.
	// If that fails too, the [UnknownError] carries the token; a Begin [WithToken]
	// gets the lease that the lost one may have taken, instead of waiting it out.
	Begin(ctx context.Context, id Identity, opts ...BeginOption) (BeginResult, error)

	// Renew gives the lease its whole term again. A lease that has expired is lost
	// even when nobody took over. Repeated once after a lost reply.
	Renew(ctx context.Context, lease Lease) (RenewResult, error)

	// Complete records that the operation's result is stored under resultRef. Call it
	// only after the durable transaction committed. Repeating it with the same
	// reference is [CompleteCompleted], whoever repeats it; with another one it is
	// [CompleteConflict]. Repeated once after a lost reply.
	Complete(ctx context.Context, lease Lease, resultRef string) (CompleteResult, error)

	// Abandon gives the lease up before any effect, so that the next Begin need not
	// wait it out. Never call it once a provider or the database may have been
	// touched: let the lease lapse, so that the next attempt is told of a takeover.
	// Repeated once after a lost reply.
	Abandon(ctx context.Context, lease Lease) (AbandonResult, error)

	// ReadStatus looks at id without changing anything; it is never unknown.
	ReadStatus(ctx context.Context, id Identity) (Status, error)
}

// BeginOutcome is what a Begin came to. The zero value is not an outcome.
type BeginOutcome string

const (
	// BeginAcquired: the caller has the lease and must reconcile before it works.
	BeginAcquired BeginOutcome = "acquired"
	// BeginInProgress: another attempt has the lease. Answer "pending", do not work.
	BeginInProgress BeginOutcome = "in_progress"
	// BeginCompleted: the result is stored; read it from the database.
	BeginCompleted BeginOutcome = "completed"
	// BeginConflict: the same key came with another fingerprint or durable id. Refuse
	// the request; nothing was changed.
	BeginConflict BeginOutcome = "conflict"
)

// Valid tells whether o is an outcome.
func (o BeginOutcome) Valid() bool {
	return o == BeginAcquired || o == BeginInProgress || o == BeginCompleted || o == BeginConflict
}

// BeginResult is the answer to a Begin.
type BeginResult struct {
	Outcome BeginOutcome
	// Lease is set when acquired.
	Lease Lease
	// MustReconcile is true when acquired: read the durable operation again and ask
	// the provider with its stable key before any effect.
	MustReconcile bool
	// Remaining is how long the present lease still lasts by the server's clock, when
	// in progress.
	Remaining time.Duration
	// ResultRef is set when completed.
	ResultRef string
}

// RenewOutcome is what a Renew came to. The zero value is not an outcome.
type RenewOutcome string

const (
	// RenewRenewed: the lease has its whole term again.
	RenewRenewed RenewOutcome = "renewed"
	// RenewLost: the token does not own a live lease any more. Stop working.
	RenewLost RenewOutcome = "lost"
)

// Valid tells whether o is an outcome.
func (o RenewOutcome) Valid() bool { return o == RenewRenewed || o == RenewLost }

// RenewResult is the answer to a Renew.
type RenewResult struct {
	Outcome RenewOutcome
	// Lease is the renewed lease, with its new ValidUntil.
	Lease Lease
}

// CompleteOutcome is what a Complete came to. The zero value is not an outcome.
type CompleteOutcome string

const (
	// CompleteCompleted: the reference is recorded, by this call or before it.
	CompleteCompleted CompleteOutcome = "completed"
	// CompleteConflict: another reference is recorded, or another operation has the
	// key. The database decides which result stands.
	CompleteConflict CompleteOutcome = "conflict"
	// CompleteLost: the token does not own a live lease any more; nothing was
	// recorded. The stored result stands; the next Begin finds it by reconciling.
	CompleteLost CompleteOutcome = "lost"
)

// Valid tells whether o is an outcome.
func (o CompleteOutcome) Valid() bool {
	return o == CompleteCompleted || o == CompleteConflict || o == CompleteLost
}

// CompleteResult is the answer to a Complete.
type CompleteResult struct {
	Outcome   CompleteOutcome
	ResultRef string // set when completed
}

// AbandonOutcome is what an Abandon came to. The zero value is not an outcome.
type AbandonOutcome string

const (
	// AbandonAbandoned: the next Begin acquires at once.
	AbandonAbandoned AbandonOutcome = "abandoned"
	// AbandonLost: the token does not own a live lease; there is nothing to give up.
	AbandonLost AbandonOutcome = "lost"
)

// Valid tells whether o is an outcome.
func (o AbandonOutcome) Valid() bool { return o == AbandonAbandoned || o == AbandonLost }

// AbandonResult is the answer to an Abandon.
type AbandonResult struct{ Outcome AbandonOutcome }

// StatusOutcome is what a ReadStatus found. The zero value is not an outcome.
type StatusOutcome string

const (
	// StatusMissing: nothing is recorded, or its retention is over.
	StatusMissing StatusOutcome = "missing"
	// StatusInProgress: an attempt has a live lease.
	StatusInProgress StatusOutcome = "in_progress"
	// StatusRecoveryRequired: the last attempt's lease ended before it completed. The
	// next Begin acquires and must reconcile.
	StatusRecoveryRequired StatusOutcome = "recovery_required"
	// StatusCompleted: the result is stored; read it from the database.
	StatusCompleted StatusOutcome = "completed"
	// StatusConflict: the record belongs to another fingerprint or durable id.
	StatusConflict StatusOutcome = "conflict"
)

// Valid tells whether o is an outcome.
func (o StatusOutcome) Valid() bool {
	switch o {
	case StatusMissing, StatusInProgress, StatusRecoveryRequired, StatusCompleted, StatusConflict:
		return true
	}
	return false
}

// Status is the answer to a ReadStatus.
type Status struct {
	Outcome   StatusOutcome
	Remaining time.Duration // of the live lease, when in progress
	ResultRef string        // set when completed
}

// BeginOptions are the resolved options of a Begin; see [ResolveBeginOptions].
type BeginOptions struct {
	Token Token // the attempt's identity; a fresh one unless [WithToken] gave it
	given bool  // by WithToken: then an empty one is refused
}

// BeginOption changes one Begin.
type BeginOption func(*BeginOptions)

// WithToken begins as the attempt that token names: that of an [UnknownError] whose
// Begin may have been applied. A live lease under this token is acquired again by its
// owner; one that has expired is taken over under a fresh token. Never share a token
// between two workers.
func WithToken(token Token) BeginOption {
	return func(o *BeginOptions) { o.Token, o.given = token, true }
}

// ResolveBeginOptions applies opts, makes a fresh token where none was given, and
// checks the one that was. A nil option is refused by its place, opts[0]. For
// implementations of [Coordinator].
func ResolveBeginOptions(opts ...BeginOption) (BeginOptions, error) {
	var o BeginOptions
	for i, opt := range opts {
		if opt == nil {
			return o, &InvalidError{Argument: fmt.Sprintf("opts[%d]", i), Allowed: "an option, not nil"}
		}
		opt(&o)
	}
	if o.Token == "" && !o.given {
		o.Token = NewToken()
	}
	return o, o.Token.validate("token")
}
