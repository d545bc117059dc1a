package cronfx

import (
	"context"
	"fmt"

	"github.com/wrkbelt/coord/semantic"
)

// EnqueueGateResult says what TryEnqueueOrgJob did.
type EnqueueGateResult string

const (
	// Enqueued: the organisation's records were queued; it is gated for the cooldown.
	Enqueued EnqueueGateResult = "ENQUEUED"
	// Gated: some replica queued them within the cooldown, or is doing so now.
	Gated EnqueueGateResult = "GATED"
	// Failed: they were not, or not all, queued; the error says why.
	Failed EnqueueGateResult = "FAILED"
)

var _ OrganizationGate = (*Runner)(nil)

// TryEnqueueOrgJob queues the due records of one organisation, unless that was done
// within the job's cooldown anywhere in the cluster. jobType names a [FanoutJob] with
// ScanOrganization. It works whether or not the runner is running; a handler reaches it
// by [Tick].Organizations.
//
// The gate is a lock on cron-fanout:<jobType>:<organizationID>, without a time
// component, whose TTL is the cooldown. It is kept after ENQUEUED and released after
// FAILED, so that the next try may succeed.
//
// The error is nil for ENQUEUED and GATED. With FAILED it matches
// [semantic.ErrInvalidArgument] (nothing was done), [semantic.ErrUnavailable] or
// [semantic.ErrUnknown] (the gate could not say, so nothing was queued), the context's
// error, or is that of the queue or the scan; a part may have been queued then, and is
// recognised as such by its ids when it is queued again. It costs one round trip to the
// lock besides those of the queue.
func (r *Runner) TryEnqueueOrgJob(ctx context.Context, jobType, organizationID string) (result EnqueueGateResult, err error) {
	const op = "cronfx.tryEnqueueOrgJob"
	j, err := r.find(op, jobType)
	if err != nil {
		return Failed, err
	}
	if j.scanOrg == nil {
		return Failed, &semantic.ArgumentError{Operation: op, Argument: "jobType", Value: jobType, Allowed: "a FanoutJob with ScanOrganization"}
	}
	if err := semantic.ValidateName(op, "organizationID", organizationID); err != nil {
		return Failed, err
	}
	defer func() { j.measures.organizations.Add(ctx, 1, result.measured()) }()
	key := "cron-fanout:" + jobType + ":" + organizationID
	if err := semantic.ValidateName(op, "organizationID", key); err != nil { // both together are too long
		return Failed, err
	}
	claim, err := r.lock.Acquire(ctx, key, j.cooldown, semantic.WithoutFence())
	switch {
	case !claim.Acquired && claim.Reason == semantic.ReasonContended:
		return Gated, nil
	case !claim.Acquired:
		return Failed, fmt.Errorf("%s %q for %q: %w", op, jobType, organizationID, err)
	}
	defer func() {
		if result != Enqueued { // also when it panics
			r.lock.Release(ctx, key, claim.Token)
		}
	}()
	if _, err := r.scanAndEnqueue(ctx, j, organizationID); err != nil {
		return Failed, fmt.Errorf("%s %q for %q: %w", op, jobType, organizationID, err)
	}
	return Enqueued, nil
}

func (r *Runner) scanAndEnqueue(ctx context.Context, j *job, organizationID string) (report semantic.FanoutReport, err error) {
	defer recovered(&err)
	return r.enqueue(ctx, j, j.scanOrg(ctx, organizationID))
}
