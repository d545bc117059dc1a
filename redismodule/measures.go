package redismodule

import (
	"context"
	"errors"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
)

// measures are the metrics and spans of the five services. The zero value measures
// nothing.
type measures struct {
	lockAcquire, lockRelease, lockWith *observability.Operation
	lockHold                           *observability.Timer
	lockLost                           *observability.Counter

	leaseClaim, leaseTakeOver, leaseRenew, leaseRelease, leaseHold *observability.Operation
	leaseHeld                                                      *observability.Timer
	leaseLost                                                      *observability.Counter

	cacheGet, cacheSet, cacheAdd, cacheReplace, cacheTouch, cacheDelete, cacheGetOrFetch *observability.Operation

	cacheFetch   *observability.Timer
	cacheLookups *observability.Counter

	limiterTry, limiterAcquire *observability.Operation
	limiterWaiters             *observability.Level

	publish, subscribe *observability.Operation
	messages, gaps     *observability.Counter
}

func newMeasures(t observability.Telemetry) (measures, error) {
	k := observability.NewKit(t, "redis")
	m := measures{
		lockAcquire: k.Operation("coord.lock", "acquire"), lockRelease: k.Operation("coord.lock", "release").CountOnly("released"),
		lockWith: k.Internal("coord.lock with_lock", "ran", "contended", "lost"),
		lockHold: k.Timer("coord.lock.hold"), lockLost: k.Counter("coord.lock.lost"),

		leaseClaim: k.Operation("coord.lease", "claim"), leaseTakeOver: k.Operation("coord.lease", "take_over"),
		leaseRenew: k.Operation("coord.lease", "renew"), leaseRelease: k.Operation("coord.lease", "release"),
		leaseHold: k.Internal("coord.lease hold", "ran", "held", "lost"),
		leaseHeld: k.Timer("coord.lease.hold"), leaseLost: k.Counter("coord.lease.lost"),

		cacheGet: k.Operation("coord.cache", "get"), cacheSet: k.Operation("coord.cache", "set"),
		cacheAdd: k.Operation("coord.cache", "add"), cacheReplace: k.Operation("coord.cache", "replace"),
		cacheTouch: k.Operation("coord.cache", "touch"), cacheDelete: k.Operation("coord.cache", "delete"),
		cacheGetOrFetch: k.Operation("coord.cache", "get_or_fetch"),
		cacheFetch:      k.Timer("coord.cache.fetch"), cacheLookups: k.Counter("coord.cache.lookups"),

		limiterTry: k.Operation("coord.limiter", "try_acquire"), limiterAcquire: k.Operation("coord.limiter", "acquire"),
		limiterWaiters: k.Level("coord.limiter.waiters"),

		publish: k.Operation("coord.broadcast", "publish"), subscribe: k.Operation("coord.broadcast", "subscribe"),
		messages: k.Counter("coord.broadcast.messages"), gaps: k.Counter("coord.broadcast.gaps"),
	}
	return m, k.Err()
}

// lockOutcome names how an acquire ended.
func lockOutcome(claim semantic.LockClaim, err error) string {
	switch {
	case claim.Acquired:
		return "acquired"
	case claim.Reason == semantic.ReasonContended:
		return "contended"
	default:
		return semantic.FailureName(err)
	}
}

// removeOutcome names how a lease's release ended.
func removeOutcome(r semantic.RemoveResult) string {
	switch {
	case r.Err != nil:
		return semantic.FailureName(r.Err)
	case r.Removed:
		return "removed"
	case r.Reason == semantic.ReasonNoHolder:
		return "no_holder"
	default:
		return "reclaimed"
	}
}

// answerOr names how a call ended whose answer is one of two.
func answerOr(err error, yes bool, ifYes, ifNo string) string {
	switch {
	case err != nil:
		return semantic.FailureName(err)
	case yes:
		return ifYes
	default:
		return ifNo
	}
}

// withOutcome names how WithLock or Hold ended.
func withOutcome(ran bool, err, loss error, refused string) string {
	switch {
	case err == nil && ran:
		return "ran"
	case err == nil:
		return refused
	case errors.Is(err, loss):
		return "lost"
	default:
		return semantic.FailureName(err)
	}
}

// timed makes a function that runs under a lock or a lease record for how long, also
// when it panics.
func timed(t *observability.Timer, fn func(context.Context) error) func(context.Context) error {
	if t == nil || fn == nil {
		return fn
	}
	return func(ctx context.Context) error {
		began := time.Now()
		defer func() { t.Record(ctx, time.Since(began), "") }()
		return fn(ctx)
	}
}
