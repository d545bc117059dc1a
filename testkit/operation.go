package testkit

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
)

// OperationBackend is the memory that the clients of an [operation.Coordinator] double
// share. Safe for concurrent use.
type OperationBackend struct {
	injector
	clock semantic.Clock
	// apply makes one step of a record, which is the zero one where there is none.
	apply func(r *operationRecord, now time.Time, c operationCommand) operationAnswer

	mu      sync.Mutex
	records map[string]*operationRecord
}

// operationRecord is what is remembered of one operation.
type operationRecord struct {
	fingerprint, durable string // empty: there is no record
	owner                operation.Token
	attempt              int
	abandoned            bool // by its owner
	earlier              bool // an earlier attempt neither completed nor abandoned
	completed            bool
	ref                  string
	ends, kept           time.Time
}

type operationCommand struct {
	verb             string // begin, renew, complete, abandon or readStatus
	id               operation.Identity
	token            operation.Token
	ref              string
	lease, retention time.Duration
}

type operationAnswer struct {
	outcome   string
	remaining time.Duration
	attempt   int
	takeover  bool
	ref       string
}

// staleToken is the answer to a begin under a token whose lease has expired.
const staleToken = "stale_token"

// NewOperationBackend returns an empty backend; a nil clock is the system's.
func NewOperationBackend(clock semantic.Clock) *OperationBackend {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &OperationBackend{clock: clock, apply: applyOperation, records: map[string]*operationRecord{}}
}

// Client returns the coordinator as one replica has it: with its own lease and
// retention, whose zero values are the contract's defaults.
func (b *OperationBackend) Client(lease, retention time.Duration) *OperationCoordinator {
	if lease == 0 {
		lease = operation.DefaultLease
	}
	if retention == 0 {
		retention = max(operation.DefaultRetention, lease)
	}
	return &OperationCoordinator{backend: b, lease: lease, retention: retention}
}

// step applies one command.
func (b *OperationBackend) step(c operationCommand) operationAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, now := operation.RecordKey("testkit", c.id), b.clock.Now()
	r := b.records[key]
	if r == nil || !now.Before(r.kept) {
		delete(b.records, key) // for good, also where the clock steps back
		r = &operationRecord{}
	}
	answer := b.apply(r, now, c)
	if r.fingerprint != "" {
		b.records[key] = r
	}
	return answer
}

// applyOperation is the contract's state table.
func applyOperation(r *operationRecord, now time.Time, c operationCommand) operationAnswer {
	exists := r.fingerprint != ""
	if exists && (r.fingerprint != c.id.Fingerprint || r.durable != c.id.DurableID) {
		return operationAnswer{outcome: "conflict"}
	}
	if r.completed {
		switch {
		case c.verb == "renew", c.verb == "abandon":
			return operationAnswer{outcome: "lost"}
		case c.verb == "complete" && c.ref != r.ref:
			return operationAnswer{outcome: "conflict"}
		}
		return operationAnswer{outcome: "completed", ref: r.ref}
	}
	remaining := max(0, r.ends.Sub(now))
	mine := exists && r.owner == c.token
	keep := func() {
		if kept := now.Add(c.retention); kept.After(r.kept) {
			r.kept = kept
		}
	}
	held := func() operationAnswer {
		return operationAnswer{outcome: "acquired", remaining: r.ends.Sub(now), attempt: r.attempt, takeover: r.earlier}
	}
	switch c.verb {
	case "readStatus":
		switch {
		case !exists:
			return operationAnswer{outcome: "missing"}
		case remaining == 0:
			return operationAnswer{outcome: "recovery_required"}
		}
		return operationAnswer{outcome: "in_progress", remaining: remaining}
	case "begin":
		switch {
		case remaining > 0 && mine:
			return held()
		case remaining > 0:
			return operationAnswer{outcome: "in_progress", remaining: remaining}
		case mine:
			return operationAnswer{outcome: staleToken}
		}
		r.earlier = exists && (r.earlier || !r.abandoned)
		r.fingerprint, r.durable, r.owner, r.abandoned = c.id.Fingerprint, c.id.DurableID, c.token, false
		r.attempt++
		r.ends = now.Add(c.lease)
		keep()
		return held()
	}
	switch {
	case !mine, remaining == 0 && c.verb != "abandon", remaining == 0 && !r.abandoned:
		return operationAnswer{outcome: "lost"}
	case c.verb == "renew":
		r.ends = now.Add(c.lease)
		keep()
		return operationAnswer{outcome: "renewed", remaining: c.lease}
	case c.verb == "abandon":
		r.ends, r.abandoned = time.Time{}, true
		keep()
		return operationAnswer{outcome: "abandoned"}
	}
	r.completed, r.ref, r.ends = true, c.ref, time.Time{}
	keep()
	return operationAnswer{outcome: "completed", ref: c.ref}
}

// OperationCoordinator is an in-memory [operation.Coordinator].
type OperationCoordinator struct {
	backend          *OperationBackend
	lease, retention time.Duration
	closed           atomic.Bool
}

var _ operation.Coordinator = (*OperationCoordinator)(nil)

// NewOperationCoordinator returns the only client, with the default lease and
// retention, of a backend of its own; a nil clock is the system's.
func NewOperationCoordinator(clock semantic.Clock) *OperationCoordinator {
	return NewOperationBackend(clock).Client(0, 0)
}

// Close makes every later call fail.
func (o *OperationCoordinator) Close() { o.closed.Store(true) }

// Begin is [operation.Coordinator.Begin].
func (o *OperationCoordinator) Begin(ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
	options, err := operation.ResolveBeginOptions(opts...)
	if err = cmp.Or(operation.ValidateContext(ctx), err, id.Validate()); err != nil {
		return operation.BeginResult{}, err
	}
	c := operationCommand{verb: "begin", id: id, token: options.Token}
	sent := o.backend.clock.Now()
	a, err := o.send(ctx, c)
	if err == nil && a.outcome == staleToken {
		c.token = operation.NewToken()
		a, err = o.send(ctx, c)
	}
	if err != nil {
		return operation.BeginResult{}, err
	}
	r := operation.BeginResult{Outcome: operation.BeginOutcome(a.outcome), ResultRef: a.ref}
	switch r.Outcome {
	case operation.BeginAcquired:
		r.MustReconcile = true
		r.Lease = operation.Lease{
			Identity: id, Token: c.token, Attempt: a.attempt, Takeover: a.takeover,
			Term: o.lease, ValidUntil: semantic.SafeUntil(sent, min(a.remaining, o.lease)),
		}
	case operation.BeginInProgress:
		r.Remaining = a.remaining
	}
	return r, nil
}

// Renew is [operation.Coordinator.Renew].
func (o *OperationCoordinator) Renew(ctx context.Context, lease operation.Lease) (operation.RenewResult, error) {
	if err := cmp.Or(operation.ValidateContext(ctx), lease.Validate()); err != nil {
		return operation.RenewResult{}, err
	}
	sent := o.backend.clock.Now()
	a, err := o.send(ctx, operationCommand{verb: "renew", id: lease.Identity, token: lease.Token})
	switch {
	case err != nil:
		return operation.RenewResult{}, err
	case a.outcome != "renewed":
		return operation.RenewResult{Outcome: operation.RenewLost}, nil
	}
	lease.Term, lease.ValidUntil = o.lease, semantic.SafeUntil(sent, a.remaining)
	return operation.RenewResult{Outcome: operation.RenewRenewed, Lease: lease}, nil
}

// Complete is [operation.Coordinator.Complete].
func (o *OperationCoordinator) Complete(ctx context.Context, lease operation.Lease, resultRef string) (operation.CompleteResult, error) {
	if err := cmp.Or(operation.ValidateContext(ctx), lease.Validate(), operation.ValidateResultRef(resultRef)); err != nil {
		return operation.CompleteResult{}, err
	}
	a, err := o.send(ctx, operationCommand{verb: "complete", id: lease.Identity, token: lease.Token, ref: resultRef})
	if err != nil {
		return operation.CompleteResult{}, err
	}
	return operation.CompleteResult{Outcome: operation.CompleteOutcome(a.outcome), ResultRef: a.ref}, nil
}

// Abandon is [operation.Coordinator.Abandon].
func (o *OperationCoordinator) Abandon(ctx context.Context, lease operation.Lease) (operation.AbandonResult, error) {
	if err := cmp.Or(operation.ValidateContext(ctx), lease.Validate()); err != nil {
		return operation.AbandonResult{}, err
	}
	a, err := o.send(ctx, operationCommand{verb: "abandon", id: lease.Identity, token: lease.Token})
	switch {
	case err != nil:
		return operation.AbandonResult{}, err
	case a.outcome != "abandoned":
		return operation.AbandonResult{Outcome: operation.AbandonLost}, nil
	}
	return operation.AbandonResult{Outcome: operation.AbandonAbandoned}, nil
}

// ReadStatus is [operation.Coordinator.ReadStatus].
func (o *OperationCoordinator) ReadStatus(ctx context.Context, id operation.Identity) (operation.Status, error) {
	if err := cmp.Or(operation.ValidateContext(ctx), id.Validate()); err != nil {
		return operation.Status{}, err
	}
	a, err := o.send(ctx, operationCommand{verb: "readStatus", id: id})
	if err != nil {
		return operation.Status{}, err
	}
	return operation.Status{Outcome: operation.StatusOutcome(a.outcome), Remaining: a.remaining, ResultRef: a.ref}, nil
}

// send applies one command, and once more where its reply was lost.
func (o *OperationCoordinator) send(ctx context.Context, c operationCommand) (operationAnswer, error) {
	c.lease, c.retention = o.lease, o.retention
	if o.closed.Load() {
		return operationAnswer{}, &operation.UnavailableError{Command: c.verb, Cause: operation.ErrClosed}
	}
	for {
		if err := o.backend.before(ctx, "operation."+c.verb, c.id.DurableID); err != nil {
			return operationAnswer{}, o.failed(c, err)
		}
		answer := o.backend.step(c)
		lost, resolvable := o.backend.replyLost()
		switch {
		case lost && !resolvable:
			return operationAnswer{}, o.failed(c, unknown("operation."+c.verb, c.id.DurableID))
		case !lost:
			return answer, nil
		}
	}
}

func (o *OperationCoordinator) failed(c operationCommand, err error) error {
	if errors.Is(err, semantic.ErrUnknown) && c.verb != "readStatus" {
		return &operation.UnknownError{Command: c.verb, Token: c.token, Cause: err}
	}
	return &operation.UnavailableError{Command: c.verb, Cause: err}
}
