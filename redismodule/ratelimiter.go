package redismodule

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/waitline"
)

// wakeJitter is added to a waiter's wake-up at most.
const wakeJitter = 2 * time.Millisecond

// RateLimiterService is the [semantic.RateLimiter] on Redis. A decision costs one round
// trip, or none while the budget is known to be spent. Safe for concurrent use.
//
// A budget is kept under <namespace>:limit:{key}:<algorithm>:<max>:<window in ms>, always
// with a TTL. A process that has seen it spent trusts that for up to a minute: an
// operator who deletes the key by hand is noticed no later than that.
type RateLimiterService struct {
	core    *core
	scripts [3]*conn.Script // by algorithm
	spent   *spentBudgets
	lines   *waitline.Lines
	closed  atomic.Bool
}

var _ semantic.RateLimiter = (*RateLimiterService)(nil)

func newRateLimiterService(c *core) *RateLimiterService {
	r := &RateLimiterService{core: c, spent: newSpentBudgets(), lines: waitline.New(c.clock, wakeJitter)}
	r.scripts[semantic.FixedWindow] = script("limit_fixed")
	r.scripts[semantic.SlidingWindow] = script("limit_sliding")
	r.scripts[semantic.GCRA] = script("limit_gcra")
	return r
}

// close makes every method return ErrClosed, also to those who wait.
func (r *RateLimiterService) close() {
	r.closed.Store(true)
	r.lines.Close()
}

// TryAcquire implements [semantic.RateLimiter].
func (r *RateLimiterService) TryAcquire(ctx context.Context, key string, n int64, limit semantic.Limit) (d semantic.Decision, err error) {
	const op = "limiter.tryAcquire"
	_, call := r.core.measure.limiterTry.Begin(ctx, key)
	local := false
	defer func() { call.End(takeOutcome(d, local, err), err) }()
	if err := semantic.ValidateTake(op, key, n, limit); err != nil {
		return semantic.Decision{}, err
	}
	d, local, err = r.take(ctx, op, key, n, limit)
	return d, err
}

func takeOutcome(d semantic.Decision, local bool, err error) string {
	if local {
		return "denied_locally"
	}
	return answerOr(err, d.Allowed, "allowed", "denied")
}

// Acquire implements [semantic.RateLimiter].
func (r *RateLimiterService) Acquire(ctx context.Context, key string, n int64, limit semantic.Limit) (err error) {
	const op = waitline.Operation
	ctx, call := r.core.measure.limiterAcquire.Begin(ctx, key)
	call.Waits = true
	defer func() { call.End(answerOr(err, true, "allowed", ""), err) }()
	if err := semantic.ValidateTake(op, key, n, limit); err != nil {
		return err
	}
	r.core.measure.limiterWaiters.Add(ctx, 1)
	defer r.core.measure.limiterWaiters.Add(ctx, -1)
	return r.lines.Acquire(ctx, key, limit, func(ctx context.Context) (semantic.Decision, error) {
		d, _, err := r.take(ctx, op, key, n, limit)
		return d, err
	})
}

// take asks once, locally where the answer is known.
func (r *RateLimiterService) take(ctx context.Context, operation, key string, n int64, limit semantic.Limit) (d semantic.Decision, local bool, err error) {
	op := conn.Op{Name: operation, Key: key, Small: true}
	if r.closed.Load() {
		return semantic.Decision{}, false, fmt.Errorf("%s %q: %w", op.Name, op.Key, semantic.ErrClosed)
	}
	sent := r.core.clock.Now()
	if d, known := r.spent.lookup(key, n, limit, sent); known && ctx.Err() == nil {
		return d, true, nil
	}
	reply, err := r.core.command.Run(ctx, op, r.scripts[limit.Algorithm],
		[]string{r.budgetKey(key, limit)}, n, limit.Max, semantic.Milliseconds(limit.Window))
	if err != nil {
		return semantic.Decision{}, false, err
	}
	a, ok := decodeTake(reply)
	if !ok {
		return semantic.Decision{}, false, malformed(op, reply)
	}
	if a.untilOne > 0 {
		r.spent.learn(key, n, limit, a, sent, r.core.clock.Now())
	}
	return a.decision(), false, nil
}

func (r *RateLimiterService) budgetKey(key string, limit semantic.Limit) string {
	return r.core.keys.key(kindLimit, key, ":"+limit.Algorithm.String()+
		":"+strconv.FormatInt(limit.Max, 10)+
		":"+strconv.FormatInt(semantic.Milliseconds(limit.Window), 10))
}

// takeReply is what the three scripts answer.
type takeReply struct {
	taken     bool
	remaining int64
	untilNext time.Duration // until n tokens can be there after this decision
	untilFull time.Duration
	untilOne  time.Duration // positive only if none is there
}

func (a takeReply) decision() semantic.Decision {
	d := semantic.Decision{Allowed: a.taken, Remaining: a.remaining, ResetAfter: a.untilFull}
	if !a.taken {
		d.RetryAfter = a.untilNext
	}
	return d
}

func decodeTake(reply any) (a takeReply, ok bool) {
	list, ok := reply.([]any)
	if !ok || len(list) != 5 {
		return a, false
	}
	var v [5]int64
	for i := range list {
		if v[i], ok = list[i].(int64); !ok {
			return a, false
		}
	}
	return takeReply{
		taken: v[0] == 1, remaining: v[1],
		untilNext: time.Duration(v[2]) * time.Microsecond,
		untilFull: time.Duration(v[3]) * time.Microsecond,
		untilOne:  time.Duration(v[4]) * time.Microsecond,
	}, true
}
