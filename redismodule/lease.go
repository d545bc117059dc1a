package redismodule

import (
	"context"
	"errors"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
)

// memoryTTL is how long the server remembers what it answered a call, so that all of its
// tries get one answer, the late ones too: longer than any call goes on trying.
const memoryTTL = 30 * time.Second

// ResourceLeaseService is the [semantic.ResourceLease] on Redis. Every verb costs one
// round trip, one more for each lost reply. Safe for concurrent use.
type ResourceLeaseService struct {
	core   *core
	claim  *conn.Script
	remove *conn.Script
	verbs  leaseVerbs
}

var _ semantic.ResourceLease = (*ResourceLeaseService)(nil)

func newResourceLeaseService(c *core) *ResourceLeaseService {
	return &ResourceLeaseService{
		core: c, claim: script("lease_claim"), remove: script("lease_release"), verbs: newLeaseVerbs(c.measure),
	}
}

// Claim implements [semantic.ResourceLease].
func (l *ResourceLeaseService) Claim(ctx context.Context, key, holder string, ttl time.Duration) (bool, error) {
	held, _, err := l.take(ctx, l.verbs.claim, key, holder, ttl)
	return held, err
}

// TakeOver implements [semantic.ResourceLease].
func (l *ResourceLeaseService) TakeOver(ctx context.Context, key, holder string, ttl time.Duration) (previous string, err error) {
	_, previous, err = l.take(ctx, l.verbs.takeOver, key, holder, ttl)
	return previous, err
}

// leaseVerb is one way of taking a lease.
type leaseVerb struct {
	mode, name string // in the script and in errors
	measure    *observability.Operation
	done       string // its outcome when it did what was asked
}

type leaseVerbs struct{ claim, takeOver, renew leaseVerb }

func newLeaseVerbs(m measures) leaseVerbs {
	return leaseVerbs{
		claim:    leaseVerb{"claim", "lease.claim", m.leaseClaim, "claimed"},
		takeOver: leaseVerb{"takeover", "lease.takeOver", m.leaseTakeOver, "taken_over"},
		renew:    leaseVerb{"renew", "lease.renew", m.leaseRenew, "renewed"},
	}
}

func (l *ResourceLeaseService) take(ctx context.Context, verb leaseVerb, key, holder string, ttl time.Duration) (held bool, other string, err error) {
	_, call := verb.measure.Begin(ctx, key)
	defer func() { call.End(answerOr(err, held, verb.done, "held"), err) }()
	op := conn.Op{Name: verb.name, Key: key, Small: true}
	if err := l.check(op, holder); err != nil {
		return false, "", err
	}
	if err := semantic.ValidateDuration(op.Name, "ttl", ttl); err != nil {
		return false, "", err
	}
	keys := []string{l.core.keys.key(kindLease, op.Key, ""), l.memory(op.Key)}
	again := 0
	found, err := resolve(ctx, time.Now().Add(min(ttl, memoryTTL)), func(ctx context.Context) (finding, error) {
		reply, err := l.core.command.Run(ctx, op, l.claim, keys,
			verb.mode, semantic.Milliseconds(ttl), l.core.id, memoryTTL.Milliseconds(), again, holder)
		again = 1
		if err != nil {
			return finding{}, err
		}
		return decodeFinding(op, reply)
	})
	return found.done, found.holder, err
}

// Release implements [semantic.ResourceLease].
func (l *ResourceLeaseService) Release(ctx context.Context, key, holder string) (result semantic.RemoveResult) {
	_, call := l.core.measure.leaseRelease.Begin(ctx, key)
	defer func() { call.End(removeOutcome(result), result.Err) }()
	op := conn.Op{Name: "lease.release", Key: key, Small: true}
	if err := l.check(op, holder); err != nil {
		return semantic.RemoveResult{Reason: semantic.ReasonRedisUnavailable, Err: err}
	}
	keys := []string{l.core.keys.key(kindLease, key, ""), l.memory(key)}
	again := 0
	found, err := resolve(ctx, time.Now().Add(memoryTTL), func(ctx context.Context) (finding, error) {
		reply, err := l.core.command.Run(ctx, op, l.remove, keys, memoryTTL.Milliseconds(), again, holder)
		again = 1
		if err != nil {
			return finding{}, err
		}
		return decodeFinding(op, reply)
	})
	switch {
	case err != nil:
		l.core.signals.LeaseRemoveFailed(key, holder, outcomeOf(err), err)
		return semantic.RemoveResult{Reason: semantic.ReasonRedisUnavailable, Err: err}
	case found.done:
		return semantic.RemoveResult{Removed: true, Holder: holder}
	case found.holder == "":
		return semantic.RemoveResult{Reason: semantic.ReasonNoHolder}
	default:
		l.core.signals.LeaseReclaimDetected(key, holder, found.holder)
		return semantic.RemoveResult{Reason: semantic.ReasonReclaimed, Holder: found.holder}
	}
}

// Hold implements [semantic.ResourceLease].
func (l *ResourceLeaseService) Hold(ctx context.Context, key, holder string, ttl time.Duration, fn func(context.Context) error) (held bool, err error) {
	ctx, call := l.core.measure.leaseHold.Begin(ctx, key)
	outcome := "failed" // of a panic
	defer func() { call.End(outcome, err) }()
	held, err = semantic.RunHold(ctx, l.core.clock, l, key, holder, ttl, timed(l.core.measure.leaseHeld, fn), semantic.HoldHooks{
		Renew: func(ctx context.Context) (bool, error) {
			held, _, err := l.take(ctx, l.verbs.renew, key, holder, ttl)
			return held, err
		},
		RenewFailed: func(err error) { l.core.signals.LeaseRenewFailed(key, holder, err) },
		Lost: func(err error) {
			l.core.signals.LeaseLost(key, holder, err)
			l.core.measure.leaseLost.Add(ctx, 1, "")
		},
	})
	outcome = withOutcome(held, err, semantic.ErrLeaseLost, "held")
	return held, err
}

// memory is the key under which the server remembers what it answered this one call.
func (l *ResourceLeaseService) memory(key string) string {
	return l.core.keys.key(kindLease, key, ":call:"+newToken())
}

func (l *ResourceLeaseService) check(op conn.Op, holder string) error {
	return errors.Join(
		semantic.ValidateName(op.Name, "key", op.Key),
		semantic.ValidateName(op.Name, "holder", holder),
	)
}

// finding is the reply of a lease script: whether it did what was asked, and the
// other holder it met.
type finding struct {
	done   bool
	holder string
}

func decodeFinding(op conn.Op, reply any) (finding, error) {
	if list, ok := reply.([]any); ok && len(list) == 2 {
		done, ok1 := list[0].(int64)
		holder, ok2 := list[1].(string)
		if ok1 && ok2 {
			return finding{done == 1, holder}, nil
		}
	}
	return finding{}, malformed(op, reply)
}
