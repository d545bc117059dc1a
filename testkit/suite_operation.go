package testkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
)

// The settings of the clients that the suite of [operation.Coordinator] asks a backend
// for: short, so that a real backend's leases and records expire within a test, and
// long enough for a busy machine.
const (
	OperationLease     = 800 * time.Millisecond
	OperationRetention = 4 * OperationLease
)

type (
	coordinator = operation.Coordinator
	operations  = Backend[operation.Coordinator]
)

// RunOperationCoordinator runs the conformance suite of [operation.Coordinator] on b,
// whose clients have [OperationLease] and [OperationRetention].
func RunOperationCoordinator(t *testing.T, b Backend[operation.Coordinator]) {
	t.Helper()
	runCases(t, b, OperationCoordinatorCases())
}

// OperationCoordinatorCases returns the suite's cases.
func OperationCoordinatorCases() []Case[operation.Coordinator] {
	cases := operationStateCases()
	cases = append(cases, operationAttemptCases()...)
	return append(cases, operationFaultCases()...)
}

// operationAttemptCases are about who works, and which attempt it is.
func operationAttemptCases() []Case[operation.Coordinator] {
	return []Case[operation.Coordinator]{
		{Name: "an acquired lease is the first attempt's and must be reconciled", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			r := mustBegin(t, c, operationID("first"), operation.BeginAcquired)
			l := r.Lease
			if !r.MustReconcile || l.Attempt != 1 || l.Takeover || l.Identity != operationID("first") || l.Term != OperationLease {
				t.Errorf("acquired %+v", r)
			}
			if err := l.Validate(); err != nil {
				t.Errorf("lease: %v", err)
			}
			if l.ValidUntil.IsZero() {
				t.Errorf("the lease does not say until when it is valid")
			}
		}},
		{Name: "of many concurrent begins exactly one acquires", Run: func(t T, b operations) {
			cs := b.New(t, 4)
			for round := range 10 {
				id := operationID(fmt.Sprint("race-", round))
				var won atomic.Int32
				var all sync.WaitGroup
				for i := range 64 {
					all.Go(func() {
						r, err := cs[i%len(cs)].Begin(t.Context(), id)
						switch {
						case err != nil:
							t.Errorf("begin: %v", err)
						case r.Outcome == operation.BeginAcquired:
							won.Add(1)
						case r.Outcome != operation.BeginInProgress || r.Remaining <= 0:
							t.Errorf("begin: %+v", r)
						}
					})
				}
				all.Wait()
				if won.Load() != 1 {
					t.Fatalf("%d attempts acquired one operation, want exactly 1", won.Load())
				}
			}
		}},
		{Name: "a takeover is told with its attempt number and shuts the former attempt out", Run: func(t T, b operations) {
			cs := b.New(t, 2)
			id := operationID("takeover")
			former := mustBegin(t, cs[0], id, operation.BeginAcquired).Lease
			b.Advance(OperationLease)
			present := mustBegin(t, cs[1], id, operation.BeginAcquired).Lease
			if present.Attempt != 2 || !present.Takeover || present.Token == former.Token {
				t.Errorf("took over as %+v", present)
			}
			mustRenew(t, cs[0], former, operation.RenewLost)
			mustComplete(t, cs[0], former, "former", operation.CompleteLost)
			mustAbandon(t, cs[0], former, operation.AbandonLost)
			mustStatus(t, cs[0], id, operation.StatusInProgress)
			mustComplete(t, cs[1], present, "present", operation.CompleteCompleted)
			if s := mustStatus(t, cs[0], id, operation.StatusCompleted); s.ResultRef != "present" {
				t.Errorf("result is %q, want the present attempt's", s.ResultRef)
			}
		}},
		{Name: "attempts are counted on", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			id := operationID("count")
			for n := 1; n <= 3; n++ {
				if l := mustBegin(t, c, id, operation.BeginAcquired).Lease; l.Attempt != n || l.Takeover != (n > 1) {
					t.Errorf("attempt %d is told as %d, takeover %v", n, l.Attempt, l.Takeover)
				}
				b.Advance(OperationLease)
			}
		}},
		{Name: "begin under the token of a live lease is acquired again by its owner", Run: func(t T, b operations) {
			cs := b.New(t, 2)
			id := operationID("again")
			mustBegin(t, cs[0], id, operation.BeginAcquired)
			b.Advance(OperationLease)
			first := mustBegin(t, cs[0], id, operation.BeginAcquired).Lease
			again, err := cs[1].Begin(t.Context(), id, operation.WithToken(first.Token))
			if err != nil || again.Outcome != operation.BeginAcquired {
				t.Fatalf("begin again: %+v, %v", again, err)
			}
			if l := again.Lease; l.Token != first.Token || l.Attempt != first.Attempt || l.Takeover != first.Takeover {
				t.Errorf("acquired again as %+v, first was %+v", l, first)
			}
			mustBegin(t, cs[1], id, operation.BeginInProgress)
		}},
		{Name: "a token whose lease has expired is not revived", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			id := operationID("stale")
			first := mustBegin(t, c, id, operation.BeginAcquired).Lease
			b.Advance(OperationLease)
			again, err := c.Begin(t.Context(), id, operation.WithToken(first.Token))
			if err != nil || again.Outcome != operation.BeginAcquired {
				t.Fatalf("begin: %+v, %v", again, err)
			}
			if again.Lease.Token == first.Token || again.Lease.Attempt != 2 || !again.Lease.Takeover {
				t.Errorf("acquired as %+v, want a takeover under a fresh token", again.Lease)
			}
			mustRenew(t, c, first, operation.RenewLost)
		}},
		{Name: "renew gives the whole term again", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			id := operationID("renew")
			lease := mustBegin(t, c, id, operation.BeginAcquired).Lease
			b.Advance(OperationLease * 6 / 10)
			renewed := mustRenew(t, c, lease, operation.RenewRenewed).Lease
			if !renewed.ValidUntil.After(lease.ValidUntil) || renewed.Token != lease.Token || renewed.Attempt != 1 {
				t.Errorf("renewed to %+v, was %+v", renewed, lease)
			}
			b.Advance(OperationLease * 6 / 10)
			mustStatus(t, c, id, operation.StatusInProgress)
			b.Advance(OperationLease * 6 / 10)
			mustStatus(t, c, id, operation.StatusRecoveryRequired)
		}},
		{Name: "an abandoned lease is free at once, and no takeover", Run: func(t T, b operations) {
			cs := b.New(t, 2)
			id := operationID("abandon")
			first := mustBegin(t, cs[0], id, operation.BeginAcquired).Lease
			mustAbandon(t, cs[0], first, operation.AbandonAbandoned)
			mustAbandon(t, cs[0], first, operation.AbandonAbandoned)
			mustRenew(t, cs[0], first, operation.RenewLost)
			mustComplete(t, cs[0], first, "ref", operation.CompleteLost)
			second := mustBegin(t, cs[1], id, operation.BeginAcquired).Lease
			if second.Attempt != 2 || second.Takeover {
				t.Errorf("the attempt after an abandoned one is told as %+v", second)
			}
			mustAbandon(t, cs[0], first, operation.AbandonLost)
			mustStatus(t, cs[0], id, operation.StatusInProgress)
		}},
		{Name: "an abandon does not hide that an earlier attempt may have had effects", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			id := operationID("earlier")
			mustBegin(t, c, id, operation.BeginAcquired)
			b.Advance(OperationLease)
			second := mustBegin(t, c, id, operation.BeginAcquired).Lease
			mustAbandon(t, c, second, operation.AbandonAbandoned)
			if third := mustBegin(t, c, id, operation.BeginAcquired).Lease; third.Attempt != 3 || !third.Takeover {
				t.Errorf("the third attempt is told as %+v", third)
			}
		}},
		{Name: "an abandoned operation still refuses another fingerprint", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			id := operationID("abandoned-conflict")
			mustAbandon(t, c, mustBegin(t, c, id, operation.BeginAcquired).Lease, operation.AbandonAbandoned)
			mustBegin(t, c, otherFingerprint(id), operation.BeginConflict)
		}},
		{Name: "after the retention the same request is a new one", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			done, taken := operationID("retained"), operationID("retained-taken")
			mustComplete(t, c, mustBegin(t, c, done, operation.BeginAcquired).Lease, "ref", operation.CompleteCompleted)
			mustBegin(t, c, taken, operation.BeginAcquired)
			b.Advance(OperationRetention / 2)
			mustStatus(t, c, done, operation.StatusCompleted)
			mustBegin(t, c, taken, operation.BeginAcquired)
			b.Advance(OperationRetention/2 + OperationLease/4)
			mustStatus(t, c, done, operation.StatusMissing)
			// The other one was changed later.
			mustStatus(t, c, taken, operation.StatusRecoveryRequired)
			b.Advance(OperationRetention / 2)
			for _, id := range []operation.Identity{done, taken} {
				if l := mustBegin(t, c, id, operation.BeginAcquired).Lease; l.Attempt != 1 || l.Takeover {
					t.Errorf("a forgotten operation begins as %+v", l)
				}
			}
		}},
		{Name: "operations of other tenants, names and keys are others", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			id := operationID("kk")
			id.Tenant, id.Operation = "ab", "c"
			mustBegin(t, c, id, operation.BeginAcquired)
			for _, change := range []func(*operation.Identity){
				func(i *operation.Identity) { i.Tenant, i.Operation = "a", "bc" },
				func(i *operation.Identity) { i.Tenant = "other" },
				func(i *operation.Identity) { i.Operation = "other" },
				func(i *operation.Identity) { i.IdempotencyKey = "kk\u2028<>&\"😀" },
			} {
				other := id
				change(&other)
				mustBegin(t, c, other, operation.BeginAcquired)
			}
		}},
		{Name: "arguments out of bounds are refused", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			lease := mustBegin(t, c, operationID("bounds"), operation.BeginAcquired).Lease
			bad := operationID("bounds")
			bad.Tenant = "a\nb"
			badLease, badToken := lease, lease
			badLease.Identity, badToken.Token = bad, "short"
			for name, call := range map[string]func() error{
				"begin":            func() error { _, err := c.Begin(t.Context(), bad); return err },
				"begin with token": func() error { _, err := c.Begin(t.Context(), lease.Identity, operation.WithToken("x")); return err },
				"read":             func() error { _, err := c.ReadStatus(t.Context(), bad); return err },
				"renew":            func() error { _, err := c.Renew(t.Context(), badLease); return err },
				"renew token":      func() error { _, err := c.Renew(t.Context(), badToken); return err },
				"complete":         func() error { _, err := c.Complete(t.Context(), badLease, "ref"); return err },
				"complete ref":     func() error { _, err := c.Complete(t.Context(), lease, "no spaces"); return err },
				"complete no ref":  func() error { _, err := c.Complete(t.Context(), lease, ""); return err },
				"complete long":    func() error { _, err := c.Complete(t.Context(), lease, strings.Repeat("r", 257)); return err },
				"abandon":          func() error { _, err := c.Abandon(t.Context(), badToken); return err },
				"nil option":       func() error { _, err := c.Begin(t.Context(), lease.Identity, nil); return err },
			} {
				if err := call(); !errors.Is(err, operation.ErrInvalid) {
					t.Errorf("%s: %v, want ErrInvalid", name, err)
				}
			}
			mustStatus(t, c, lease.Identity, operation.StatusInProgress)
		}},
		{Name: "a nil context is refused like any other argument", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			lease := mustBegin(t, c, operationID("no-context"), operation.BeginAcquired).Lease
			var none context.Context
			for name, err := range everyCommand(none, c, lease.Identity, lease) {
				if !errors.Is(err, operation.ErrInvalid) || !strings.Contains(err.Error(), "ctx") {
					t.Errorf("%s: %v, want ErrInvalid that names ctx", name, err)
				}
			}
			mustStatus(t, c, lease.Identity, operation.StatusInProgress)
		}},
		{Name: "a cancelled context is never dispatched", Run: func(t T, b operations) {
			c := b.New(t, 1)[0]
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := c.Begin(ctx, operationID("cancelled"))
			if !errors.Is(err, operation.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("begin: %v", err)
			}
			mustStatus(t, c, operationID("cancelled"), operation.StatusMissing)
		}},
	}
}

func operationID(key string) operation.Identity {
	return operation.Identity{
		Tenant: "acme", Operation: "charge", IdempotencyKey: key,
		Fingerprint: strings.Repeat("0123456789abcdef", 4), DurableID: "durable:1/a%2F_b.c-d",
	}
}

func otherFingerprint(id operation.Identity) operation.Identity {
	id.Fingerprint = strings.Repeat("f", 64)
	return id
}

func otherDurable(id operation.Identity) operation.Identity {
	id.DurableID = "another"
	return id
}

func mustBegin(t T, c coordinator, id operation.Identity, want operation.BeginOutcome) operation.BeginResult {
	t.Helper()
	r, err := c.Begin(t.Context(), id)
	if err != nil || r.Outcome != want {
		t.Fatalf("begin %s: %q, %v; want %s", id.IdempotencyKey, r.Outcome, err, want)
	}
	return r
}

func mustRenew(t T, c coordinator, l operation.Lease, want operation.RenewOutcome) operation.RenewResult {
	t.Helper()
	r, err := c.Renew(t.Context(), l)
	if err != nil || r.Outcome != want {
		t.Fatalf("renew %s: %q, %v; want %s", l.Identity.IdempotencyKey, r.Outcome, err, want)
	}
	return r
}

func mustComplete(t T, c coordinator, l operation.Lease, ref string, want operation.CompleteOutcome) {
	t.Helper()
	r, err := c.Complete(t.Context(), l, ref)
	if err != nil || r.Outcome != want || (want == operation.CompleteCompleted) != (r.ResultRef == ref) {
		t.Fatalf("complete %s with %q: %+v, %v; want %s", l.Identity.IdempotencyKey, ref, r, err, want)
	}
}

func mustAbandon(t T, c coordinator, l operation.Lease, want operation.AbandonOutcome) {
	t.Helper()
	r, err := c.Abandon(t.Context(), l)
	if err != nil || r.Outcome != want {
		t.Fatalf("abandon %s: %q, %v; want %s", l.Identity.IdempotencyKey, r.Outcome, err, want)
	}
}

func mustStatus(t T, c coordinator, id operation.Identity, want operation.StatusOutcome) operation.Status {
	t.Helper()
	s, err := c.ReadStatus(t.Context(), id)
	if err != nil || s.Outcome != want {
		t.Fatalf("status of %s: %q, %v; want %s", id.IdempotencyKey, s.Outcome, err, want)
	}
	return s
}
