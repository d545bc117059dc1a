package operationstore

import (
	"context"
	"errors"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
)

// measures are the metrics and spans of the five commands. The zero value measures
// nothing.
type measures struct{ begin, renew, complete, abandon, readStatus *observability.Operation }

func newMeasures(t observability.Telemetry) (measures, error) {
	k := observability.NewKit(t, "operations")
	return measures{
		begin: k.Operation("coord.operation", "begin"), renew: k.Operation("coord.operation", "renew"),
		complete: k.Operation("coord.operation", "complete"), abandon: k.Operation("coord.operation", "abandon"),
		readStatus: k.Operation("coord.operation", "read_status"),
	}, k.Err()
}

// The commands of [Opened] are the store's, measured.

// Begin implements [operation.Coordinator].
func (o *Opened) Begin(ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (r operation.BeginResult, err error) {
	_, call := o.measure.begin.Begin(ctx, id.IdempotencyKey)
	defer func() { call.End(outcome(string(r.Outcome), err), err) }()
	return o.Store.Begin(ctx, id, opts...)
}

// Renew implements [operation.Coordinator].
func (o *Opened) Renew(ctx context.Context, lease operation.Lease) (r operation.RenewResult, err error) {
	_, call := o.measure.renew.Begin(ctx, lease.Identity.IdempotencyKey)
	defer func() { call.End(outcome(string(r.Outcome), err), err) }()
	return o.Store.Renew(ctx, lease)
}

// Complete implements [operation.Coordinator].
func (o *Opened) Complete(ctx context.Context, lease operation.Lease, resultRef string) (r operation.CompleteResult, err error) {
	_, call := o.measure.complete.Begin(ctx, lease.Identity.IdempotencyKey)
	defer func() { call.End(outcome(string(r.Outcome), err), err) }()
	return o.Store.Complete(ctx, lease, resultRef)
}

// Abandon implements [operation.Coordinator].
func (o *Opened) Abandon(ctx context.Context, lease operation.Lease) (r operation.AbandonResult, err error) {
	_, call := o.measure.abandon.Begin(ctx, lease.Identity.IdempotencyKey)
	defer func() { call.End(outcome(string(r.Outcome), err), err) }()
	return o.Store.Abandon(ctx, lease)
}

// ReadStatus implements [operation.Coordinator].
func (o *Opened) ReadStatus(ctx context.Context, id operation.Identity) (r operation.Status, err error) {
	_, call := o.measure.readStatus.Begin(ctx, id.IdempotencyKey)
	defer func() { call.End(outcome(string(r.Outcome), err), err) }()
	return o.Store.ReadStatus(ctx, id)
}

// outcome names how a command ended.
func outcome(answer string, err error) string {
	switch {
	case err == nil:
		return answer
	case errors.Is(err, operation.ErrInvalid):
		return "invalid"
	case errors.Is(err, operation.ErrClosed):
		return "closed"
	case errors.Is(err, operation.ErrRejected):
		return "rejected"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, operation.ErrUnknown):
		return "unknown"
	case errors.Is(err, operation.ErrUnavailable):
		return "unavailable"
	}
	return semantic.FailureName(err)
}
