package testkit

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
)

// operationBug is a coordinator that breaks one promise: in the backend's step, or in
// the client around it.
type operationBug struct {
	apply func(r *operationRecord, now time.Time, c operationCommand) operationAnswer
	begin func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error)
	read  func(o *OperationCoordinator, ctx context.Context, id operation.Identity) (operation.Status, error)
}

type buggyOperations struct {
	*OperationCoordinator
	operationBug
}

func (b *buggyOperations) Begin(ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
	if b.begin != nil {
		return b.begin(b.OperationCoordinator, ctx, id, opts...)
	}
	return b.OperationCoordinator.Begin(ctx, id, opts...)
}

func (b *buggyOperations) ReadStatus(ctx context.Context, id operation.Identity) (operation.Status, error) {
	if b.read != nil {
		return b.read(b.OperationCoordinator, ctx, id)
	}
	return b.OperationCoordinator.ReadStatus(ctx, id)
}

// TestOperationCoordinatorSuiteBites shows that each broken coordinator fails the case
// named for it.
func TestOperationCoordinatorSuiteBites(t *testing.T) {
	type (
		record  = *operationRecord
		command = operationCommand
		answer  = operationAnswer
	)
	const stateOn = "every command answers as it should on "
	for _, seeded := range []struct {
		bug  string
		fail string // the case that must catch it
		operationBug
	}{
		{"lease never expires", "a takeover is told with its attempt number and shuts the former attempt out", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				c.lease = time.Hour
				return applyOperation(r, now, c)
			}}},
		{"everybody acquires", "of many concurrent begins exactly one acquires", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "begin" {
					c.token = r.owner
				}
				a := applyOperation(r, now, c)
				if a.outcome == staleToken {
					a.outcome = "in_progress"
				}
				return a
			}}},
		{"renew without owner check", "a takeover is told with its attempt number and shuts the former attempt out", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "renew" {
					c.token = r.owner
				}
				return applyOperation(r, now, c)
			}}},
		{"complete without owner check", "a takeover is told with its attempt number and shuts the former attempt out", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "complete" {
					c.token = r.owner
				}
				return applyOperation(r, now, c)
			}}},
		{"abandon without owner check", stateOn + string(stateLive), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "abandon" {
					c.token = r.owner
				}
				return applyOperation(r, now, c)
			}}},
		{"complete after the lease ended", stateOn + string(stateExpired), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "complete" && !r.completed && r.owner == c.token && r.fingerprint == c.id.Fingerprint && r.durable == c.id.DurableID {
					r.ends = now.Add(time.Second)
				}
				return applyOperation(r, now, c)
			}}},
		{"renew after the lease ended", stateOn + string(stateExpired), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "renew" && r.fingerprint == c.id.Fingerprint && r.durable == c.id.DurableID && r.owner == c.token && !r.completed {
					r.ends = now.Add(time.Second)
				}
				return applyOperation(r, now, c)
			}}},
		{"fingerprint not compared", stateOn + string(stateLive), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if r.fingerprint != "" {
					c.id.Fingerprint = r.fingerprint
				}
				return applyOperation(r, now, c)
			}}},
		{"durable id not compared", stateOn + string(stateCompleted), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if r.durable != "" {
					c.id.DurableID = r.durable
				}
				return applyOperation(r, now, c)
			}}},
		{"a conflict overwrites the record", stateOn + string(stateLive), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				a := applyOperation(r, now, c)
				if a.outcome == "conflict" {
					r.ends = time.Time{}
				}
				return a
			}}},
		{"another result reference accepted", stateOn + string(stateCompleted), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "complete" && r.completed {
					r.ref = c.ref
				}
				return applyOperation(r, now, c)
			}}},
		{"same reference refused to another attempt", stateOn + string(stateCompleted), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "complete" && r.completed && r.owner != c.token {
					return answer{outcome: "lost"}
				}
				return applyOperation(r, now, c)
			}}},
		{"reading takes part", stateOn + string(stateExpired), operationBug{
			apply: func(r record, now time.Time, c command) answer {
				a := applyOperation(r, now, c)
				if c.verb == "readStatus" && a.outcome == "recovery_required" {
					r.ends = now.Add(time.Minute)
				}
				return a
			}}},
		{"takeover not told", "a takeover is told with its attempt number and shuts the former attempt out", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				a := applyOperation(r, now, c)
				a.takeover = false
				return a
			}}},
		{"attempts not counted", "attempts are counted on", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				a := applyOperation(r, now, c)
				r.attempt, a.attempt = min(r.attempt, 2), min(a.attempt, 2)
				return a
			}}},
		{"own token not recognised", "begin under the token of a live lease is acquired again by its owner", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, _ ...operation.BeginOption) (operation.BeginResult, error) {
				return o.Begin(ctx, id)
			}}},
		{"stale token revived", "a token whose lease has expired is not revived", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "begin" && r.owner == c.token && !r.ends.After(now) {
					r.owner = ""
				}
				return applyOperation(r, now, c)
			}}},
		{"renew keeps the old end", "renew gives the whole term again", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				ends := r.ends
				a := applyOperation(r, now, c)
				if c.verb == "renew" {
					r.ends = ends
				}
				return a
			}}},
		{"abandon waits the lease out", "an abandoned lease is free at once, and no takeover", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				ends := r.ends
				a := applyOperation(r, now, c)
				if c.verb == "abandon" {
					r.ends = ends
				}
				return a
			}}},
		{"abandon forgets earlier attempts", "an abandon does not hide that an earlier attempt may have had effects", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				a := applyOperation(r, now, c)
				if c.verb == "abandon" {
					r.earlier = false
				}
				return a
			}}},
		{"abandon forgets the request", "an abandoned operation still refuses another fingerprint", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				if c.verb == "begin" && r.abandoned {
					r.fingerprint, r.durable = c.id.Fingerprint, c.id.DurableID
				}
				return applyOperation(r, now, c)
			}}},
		{"records never forgotten", "after the retention the same request is a new one", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				c.retention = time.Hour
				return applyOperation(r, now, c)
			}}},
		{"retention not counted from the last change", "after the retention the same request is a new one", operationBug{
			apply: func(r record, now time.Time, c command) answer {
				kept := r.kept
				a := applyOperation(r, now, c)
				if !kept.IsZero() {
					r.kept = kept
				}
				return a
			}}},
		{"fields run into each other", "operations of other tenants, names and keys are others", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
				id.Tenant, id.Operation = strings.Join([]string{id.Tenant, id.Operation}, ""), "x"
				return o.Begin(ctx, id, opts...)
			}}},
		{"arguments not checked", "arguments out of bounds are refused", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
				id.Tenant = strings.ReplaceAll(id.Tenant, "\n", "")
				return o.Begin(ctx, id, opts...)
			}}},
		{"context not heeded", "a cancelled context is never dispatched", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
				return o.Begin(context.WithoutCancel(ctx), id, opts...)
			}}},
		{"unavailable taken for unknown", "an unreachable backend is unavailable and nothing was applied", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
				r, err := o.Begin(ctx, id, opts...)
				if err != nil {
					err = &operation.UnknownError{Command: "begin", Cause: err}
				}
				return r, err
			}}},
		{"a lost reply tried again under a fresh token", "a lost reply is resolved for the same caller", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
				token := operation.NewToken()
				if len(opts) == 0 && o.backend.has(FaultLoseReply) {
					o.backend.step(operationCommand{verb: "begin", id: id, token: token, lease: o.lease, retention: o.retention})
				}
				return o.Begin(ctx, id, opts...)
			}}},
		{"unknown without its token", "replies lost for good are unknown, and the token finds out", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
				r, err := o.Begin(ctx, id, opts...)
				if unknown, ok := err.(*operation.UnknownError); ok {
					unknown.Token = operation.NewToken()
				}
				return r, err
			}}},
		{"a read that is unknown", "replies lost for good are unknown, and the token finds out", operationBug{
			read: func(o *OperationCoordinator, ctx context.Context, id operation.Identity) (operation.Status, error) {
				s, err := o.ReadStatus(ctx, id)
				if err != nil {
					err = &operation.UnknownError{Command: "readStatus", Cause: err}
				}
				return s, err
			}}},
		{"must reconcile not said", "an acquired lease is the first attempt's and must be reconciled", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
				r, err := o.Begin(ctx, id, opts...)
				r.MustReconcile = false
				return r, err
			}}},
		{"no context is any context", "a nil context is refused like any other argument", operationBug{
			read: func(o *OperationCoordinator, ctx context.Context, id operation.Identity) (operation.Status, error) {
				if ctx == nil {
					ctx = context.Background()
				}
				return o.ReadStatus(ctx, id)
			}}},
		{"nil options are overlooked", "arguments out of bounds are refused", operationBug{
			begin: func(o *OperationCoordinator, ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
				return o.Begin(ctx, id, slices.DeleteFunc(opts, func(opt operation.BeginOption) bool { return opt == nil })...)
			}}},
		{"silence outlasts the context", "a silent backend does not outlast the context", operationBug{
			read: func(o *OperationCoordinator, ctx context.Context, id operation.Identity) (operation.Status, error) {
				if o.backend.has(FaultHang) {
					<-ctx.Done()
					time.Sleep(6 * time.Second) //nolint:forbidigo // the bug is that it takes so long
				}
				return o.ReadStatus(ctx, id)
			}}},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			var backend *OperationBackend
			harness := Backend[operation.Coordinator]{
				New: func(_ T, n int) []operation.Coordinator {
					backend = NewOperationBackend(clock)
					if seeded.apply != nil {
						backend.apply = seeded.apply
					}
					var cs []operation.Coordinator
					for range n {
						cs = append(cs, &buggyOperations{backend.Client(OperationLease, OperationRetention), seeded.operationBug})
					}
					return cs
				},
				Advance: clock.Advance,
				Fault:   func(_ T, f Fault) (heal func()) { return backend.Inject(f) },
			}
			found := false
			for _, c := range OperationCoordinatorCases() {
				if c.Name != seeded.fail {
					continue
				}
				found = true
				if failures := Failures(c, harness); len(failures) == 0 {
					t.Errorf("case %q passes a coordinator with the bug %q", c.Name, seeded.bug)
				}
			}
			if !found {
				t.Fatalf("no case is named %q", seeded.fail)
			}
		})
	}
}
