package testkit

import (
	"context"
	"errors"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
)

// operationFaultCases are about what is said when the backend does not answer.
func operationFaultCases() []Case[operation.Coordinator] {
	return []Case[operation.Coordinator]{
		{Name: "an unreachable backend is unavailable and nothing was applied", Needs: NeedFaults, Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			id := operationID("down")
			lease := mustBegin(t, c, operationID("held"), operation.BeginAcquired).Lease
			heal := b.Fault(t, FaultDown)
			for name, err := range everyCommand(t.Context(), c, id, lease) {
				if !errors.Is(err, operation.ErrUnavailable) || errors.Is(err, operation.ErrUnknown) {
					t.Errorf("%s: %v, want unavailable", name, err)
				}
			}
			heal()
			mustStatus(t, c, id, operation.StatusMissing)
		}},
		{Name: "a lost reply is resolved for the same caller", Needs: NeedFaults, Run: func(t T, b operations) {
			cs := b.New(t, 2)
			id := operationID("lost-reply")
			losing := func(call func()) {
				t.Helper()
				heal := b.Fault(t, FaultLoseReply)
				call()
				heal()
			}
			var lease operation.Lease
			losing(func() { lease = mustBegin(t, cs[0], id, operation.BeginAcquired).Lease })
			if lease.Attempt != 1 || lease.Takeover {
				t.Errorf("begun as %+v: the caller met its own first try", lease)
			}
			mustBegin(t, cs[1], id, operation.BeginInProgress)
			losing(func() { mustRenew(t, cs[0], lease, operation.RenewRenewed) })
			losing(func() { mustAbandon(t, cs[0], lease, operation.AbandonAbandoned) })
			losing(func() { lease = mustBegin(t, cs[0], id, operation.BeginAcquired).Lease })
			if lease.Attempt != 2 || lease.Takeover {
				t.Errorf("begun again as %+v", lease)
			}
			losing(func() { mustComplete(t, cs[0], lease, "ref", operation.CompleteCompleted) })
		}},
		{Name: "replies lost for good are unknown, and the token finds out", Needs: NeedFaults, Run: func(t T, b operations) {
			cs := b.New(t, 2)
			id := operationID("lost-replies")
			heal := b.Fault(t, FaultLoseReplies)
			_, err := cs[0].Begin(t.Context(), id)
			heal()
			var unknown *operation.UnknownError
			if !errors.As(err, &unknown) || errors.Is(err, operation.ErrUnavailable) {
				t.Fatalf("begin: %v, want unknown", err)
			}
			mustBegin(t, cs[1], id, operation.BeginInProgress)
			r, err := cs[0].Begin(t.Context(), id, operation.WithToken(unknown.Token))
			if err != nil || r.Outcome != operation.BeginAcquired || r.Lease.Token != unknown.Token || r.Lease.Attempt != 1 {
				t.Fatalf("begin with the token: %+v, %v; want its lease without waiting it out", r, err)
			}
			heal = b.Fault(t, FaultLoseReplies)
			for name, err := range everyCommand(t.Context(), cs[0], operationID("other"), r.Lease) {
				if want := name != "readStatus"; errors.Is(err, operation.ErrUnknown) != want || err == nil {
					t.Errorf("%s: %v; unknown must be %v", name, err, want)
				}
			}
			heal()
		}},
		{Name: "a silent backend does not outlast the context", Needs: NeedFaults, Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			lease := mustBegin(t, c, operationID("silent"), operation.BeginAcquired).Lease
			heal := b.Fault(t, FaultHang)
			defer heal()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			for name, err := range everyCommand(ctx, c, operationID("silent-2"), lease) {
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, operation.ErrUnknown) && !errors.Is(err, operation.ErrUnavailable) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("returned after %v", took)
			}
		}},
	}
}

// everyCommand calls each method once and gives its error.
func everyCommand(ctx context.Context, c coordinator, id operation.Identity, lease operation.Lease) map[string]error {
	errs := map[string]error{}
	_, errs["begin"] = c.Begin(ctx, id)
	_, errs["renew"] = c.Renew(ctx, lease)
	_, errs["complete"] = c.Complete(ctx, lease, "ref")
	_, errs["abandon"] = c.Abandon(ctx, lease)
	_, errs["readStatus"] = c.ReadStatus(ctx, id)
	return errs
}
