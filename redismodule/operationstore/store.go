package operationstore

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
)

// Store is the Redis-backed [operation.Coordinator]. Every method costs one round
// trip, and one more after a lost reply. Safe for concurrent use.
type Store struct {
	config    Config // settled
	lease     any    // and its durations in ms, boxed once
	retention any
	transport *transport
	gate      *gate
	clock     semantic.Clock
	signals   *observability.Signals
}

var _ operation.Coordinator = (*Store)(nil)

func newStore(config Config, t *transport, clock semantic.Clock, signals *observability.Signals) *Store {
	return &Store{
		config: config, lease: semantic.Milliseconds(config.Lease), retention: semantic.Milliseconds(config.Retention),
		transport: t, gate: newGate(config, clock), clock: clock, signals: signals,
	}
}

// Begin is [operation.Coordinator.Begin]. It costs one more round trip when the token
// it was given names an attempt whose lease has expired.
func (s *Store) Begin(ctx context.Context, id operation.Identity, opts ...operation.BeginOption) (operation.BeginResult, error) {
	o, err := operation.ResolveBeginOptions(opts...)
	if err = cmp.Or(operation.ValidateContext(ctx), err, id.Validate()); err != nil {
		return operation.BeginResult{}, err
	}
	c := s.call("begin", id, o.Token, "")
	r, sent, err := s.send(ctx, c)
	if err == nil && r.is("stale_token", 0) {
		deadline := c.deadline
		c = s.call("begin", id, operation.NewToken(), "")
		c.deadline = deadline
		r, sent, err = s.send(ctx, c)
	}
	if err != nil {
		return operation.BeginResult{}, err
	}
	switch {
	case r.is("acquired", 4) && r.fields[0] == string(c.token) && r.number(1) > 0 && r.number(2) > 0:
		return operation.BeginResult{
			Outcome: operation.BeginAcquired, MustReconcile: true,
			Lease: operation.Lease{
				Identity: id, Token: c.token, Attempt: int(r.number(2)), Takeover: r.fields[3] == "1",
				Term: s.config.Lease, ValidUntil: s.validUntil(sent, r.duration(1)),
			},
		}, nil
	case r.is("in_progress", 1) && r.number(0) > 0:
		return operation.BeginResult{Outcome: operation.BeginInProgress, Remaining: r.duration(0)}, nil
	case r.isRef("completed"):
		return operation.BeginResult{Outcome: operation.BeginCompleted, ResultRef: r.fields[0]}, nil
	case r.is("conflict", 0):
		return operation.BeginResult{Outcome: operation.BeginConflict}, nil
	}
	return operation.BeginResult{}, s.malformed(c, r)
}

// Renew is [operation.Coordinator.Renew].
func (s *Store) Renew(ctx context.Context, lease operation.Lease) (operation.RenewResult, error) {
	if err := cmp.Or(operation.ValidateContext(ctx), lease.Validate()); err != nil {
		return operation.RenewResult{}, err
	}
	c := s.call("renew", lease.Identity, lease.Token, "")
	r, sent, err := s.send(ctx, c)
	switch {
	case err != nil:
		return operation.RenewResult{}, err
	case r.is("renewed", 1) && r.number(0) > 0:
		lease.Term, lease.ValidUntil = s.config.Lease, s.validUntil(sent, r.duration(0))
		return operation.RenewResult{Outcome: operation.RenewRenewed, Lease: lease}, nil
	case r.is("lost", 0), r.is("conflict", 0): // another operation has the key: the lease is gone too
		return operation.RenewResult{Outcome: operation.RenewLost}, nil
	}
	return operation.RenewResult{}, s.malformed(c, r)
}

// Complete is [operation.Coordinator.Complete].
func (s *Store) Complete(ctx context.Context, lease operation.Lease, resultRef string) (operation.CompleteResult, error) {
	if err := cmp.Or(operation.ValidateContext(ctx), lease.Validate(), operation.ValidateResultRef(resultRef)); err != nil {
		return operation.CompleteResult{}, err
	}
	c := s.call("complete", lease.Identity, lease.Token, resultRef)
	r, _, err := s.send(ctx, c)
	switch {
	case err != nil:
		return operation.CompleteResult{}, err
	case r.isRef("completed") && r.fields[0] == resultRef:
		return operation.CompleteResult{Outcome: operation.CompleteCompleted, ResultRef: resultRef}, nil
	case r.is("conflict", 0):
		return operation.CompleteResult{Outcome: operation.CompleteConflict}, nil
	case r.is("lost", 0):
		return operation.CompleteResult{Outcome: operation.CompleteLost}, nil
	}
	return operation.CompleteResult{}, s.malformed(c, r)
}

// Abandon is [operation.Coordinator.Abandon].
func (s *Store) Abandon(ctx context.Context, lease operation.Lease) (operation.AbandonResult, error) {
	if err := cmp.Or(operation.ValidateContext(ctx), lease.Validate()); err != nil {
		return operation.AbandonResult{}, err
	}
	c := s.call("abandon", lease.Identity, lease.Token, "")
	r, _, err := s.send(ctx, c)
	switch {
	case err != nil:
		return operation.AbandonResult{}, err
	case r.is("abandoned", 0):
		return operation.AbandonResult{Outcome: operation.AbandonAbandoned}, nil
	case r.is("lost", 0), r.is("conflict", 0):
		return operation.AbandonResult{Outcome: operation.AbandonLost}, nil
	}
	return operation.AbandonResult{}, s.malformed(c, r)
}

// ReadStatus is [operation.Coordinator.ReadStatus].
func (s *Store) ReadStatus(ctx context.Context, id operation.Identity) (operation.Status, error) {
	if err := cmp.Or(operation.ValidateContext(ctx), id.Validate()); err != nil {
		return operation.Status{}, err
	}
	c := s.call("read", id, "", "")
	r, _, err := s.send(ctx, c)
	switch {
	case err != nil:
		return operation.Status{}, err
	case r.is("missing", 0):
		return operation.Status{Outcome: operation.StatusMissing}, nil
	case r.is("in_progress", 1) && r.number(0) > 0:
		return operation.Status{Outcome: operation.StatusInProgress, Remaining: r.duration(0)}, nil
	case r.is("recovery_required", 0):
		return operation.Status{Outcome: operation.StatusRecoveryRequired}, nil
	case r.isRef("completed"):
		return operation.Status{Outcome: operation.StatusCompleted, ResultRef: r.fields[0]}, nil
	case r.is("conflict", 0):
		return operation.Status{Outcome: operation.StatusConflict}, nil
	}
	return operation.Status{}, s.malformed(c, r)
}

// Stats returns the dispatch gate's statistics. No I/O.
func (s *Store) Stats() Stats { return s.gate.snapshot() }

// validUntil is how long a lease may be relied on. Where the server's clock stepped
// back, more may be left there than was ever asked for; the local clock does not
// follow.
func (s *Store) validUntil(sent time.Time, remaining time.Duration) time.Time {
	return semantic.SafeUntil(sent, min(remaining, s.config.Lease))
}

// call is one command of the script. Its arguments point into it.
type call struct {
	name    string // the contract's verb
	command string // the script's
	token   operation.Token
	head    string // how this attempt's record begins
	ref     string
	op      conn.Op
	keys    [3]string
	args    [6]any
	size    int // of keys and arguments, for the gate
	// deadline bounds its requests; the first send sets it.
	deadline time.Time
}

func (s *Store) call(command string, id operation.Identity, token operation.Token, ref string) *call {
	key := operation.RecordKey(s.config.Namespace, id)
	beside := strings.TrimSuffix(key, "record")
	c := &call{
		name: command, command: command, token: token, ref: ref,
		head: `{"schema":1,"fingerprint":"` + id.Fingerprint + `","durableId":"` + id.DurableID + `","owner":"` + string(token) + `","state":"`,
		op:   conn.Op{Name: "operation." + command, Key: key},
		keys: [3]string{key, beside + "attempts", beside + "never"},
	}
	c.args = [6]any{&c.command, &c.head, (*string)(&c.token), s.lease, s.retention, &c.ref}
	if command == "read" {
		c.name, c.op.ReadOnly = "readStatus", true
	}
	const numbers = 2 * 10 // the two durations' digits, at most
	c.size = 2*len(key) + len(command) + len(c.head) + len(token) + len(ref) + numbers
	return c
}

// close ends the store's use of its connection and leaves the connection open.
func (s *Store) close() {
	s.gate.close()
	s.transport.close()
}
