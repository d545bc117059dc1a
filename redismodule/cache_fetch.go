package redismodule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/flight"
)

const (
	// reservationTTL is how long a load may take and still store its value.
	reservationTTL = time.Minute
	// abandonBudget bounds the end of a guard whose load has failed.
	abandonBudget = time.Second
	// guardPoll is the longest pause between two looks at a load of another process.
	guardPoll = 100 * time.Millisecond
)

// cacheLoad is one GetOrFetch that found no other of its key to join.
type cacheLoad struct {
	op      conn.Op
	ttl     time.Duration
	fetch   semantic.FetchFunc
	options semantic.FetchOptions
	// found is loadHit or loadFetched as soon as that is known; 0 when the call joined
	// the work of another.
	found atomic.Int32
}

const (
	loadHit     = 1 // the value was there
	loadFetched = 2
)

// outcome names how the GetOrFetch ended.
func (l *cacheLoad) outcome(err error) string {
	switch {
	case err != nil:
		return semantic.FailureName(err)
	case l.found.Load() == loadHit:
		return "hit"
	case l.found.Load() == loadFetched:
		return "loaded"
	default:
		return "shared"
	}
}

// reservation is the right to store what a load brings.
type reservation struct {
	token, stored string // the token, and all that the key holds
	made          time.Time
}

// GetOrFetch implements [semantic.RemoteCacheProvider].
func (c *CacheService) GetOrFetch(ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) (value []byte, err error) {
	ctx, call := c.core.measure.cacheGetOrFetch.Begin(ctx, key)
	call.Waits = true
	// Reserving changes no value, so that a failure to do so is never unknown.
	l := &cacheLoad{op: conn.Op{Name: "cache.getOrFetch", Key: key, ReadOnly: true}}
	defer func() { call.End(l.outcome(err), err) }()
	op := l.op
	if err := c.checkTTL(op, ttl); err != nil {
		return nil, err
	}
	if fetch == nil {
		return nil, &semantic.ArgumentError{Operation: op.Name, Argument: "fetch", Value: "nil", Allowed: "a function"}
	}
	options, err := semantic.ResolveFetchOptions(op.Name, opts...)
	if err != nil {
		return nil, err
	}
	l.ttl, l.fetch, l.options = ttl, fetch, options
	value, err = c.flights.Do(ctx, key, func(ctx context.Context, publish func([]byte)) ([]byte, error) {
		return c.load(ctx, l, publish)
	})
	switch {
	case errors.Is(err, flight.ErrGroupClosed):
		return nil, fmt.Errorf("%s %q: %w", op.Name, key, semantic.ErrClosed)
	case errors.Is(err, flight.ErrLeft):
		return nil, fmt.Errorf("%s %q: %w", op.Name, key, err)
	}
	return value, err
}

// load reads the value, or fetches and stores it. ctx ends when no caller waits.
func (c *CacheService) load(ctx context.Context, l *cacheLoad, publish func([]byte)) ([]byte, error) {
	value, r, err := c.readOrReserve(ctx, l)
	if r == nil {
		l.found.Store(loadHit)
		return value, err
	}
	l.found.Store(loadFetched)
	var ttl time.Duration
	began := time.Now()
	value, err = flight.Call(ctx, func(ctx context.Context) ([]byte, error) {
		value, err := l.fetch(ctx)
		if err == nil {
			ttl = l.options.TTLOf(value, l.ttl)
		}
		return value, err
	})
	c.core.measure.cacheFetch.Record(ctx, time.Since(began), answerOr(err, true, "loaded", ""))
	if err != nil || ttl == 0 {
		c.giveUp(ctx, l, r)
	}
	//nolint:errorlint // a panic of this fetch, not one that it reports of another
	if p, ok := err.(*flight.PanicError); ok {
		c.core.signals.CacheFetchPanicked(l.op.Key, fmt.Errorf("%w\n%s", p, p.Stack))
		return nil, fmt.Errorf("%s %q: %w: %w", l.op.Name, l.op.Key, semantic.ErrFetchPanicked, p)
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() == nil && ttl > 0 {
		publish(value)
		c.keep(ctx, l, r, value, ttl)
	}
	return value, nil
}

// readOrReserve returns the value, or a reservation when there is none. With a guard it
// waits for the load of another process. It is the first round trip.
func (c *CacheService) readOrReserve(ctx context.Context, l *cacheLoad) ([]byte, *reservation, error) {
	guard := l.options.ClusterGuard
	token := newToken()
	for try := 0; ; try++ {
		made := time.Now()
		reply, err := c.core.command.Run(ctx, l.op, c.reserve, c.pair(l.op.Key),
			semantic.Milliseconds(guard), semantic.Milliseconds(max(reservationTTL, guard)), token)
		if err != nil {
			return nil, nil, err
		}
		switch v := reply.(type) {
		case string:
			return []byte(v), nil, nil
		case []any:
			if r, ok := decodeReservation(v); ok {
				r.made = made
				return nil, r, nil
			}
		case int64:
			if !pause(ctx, lookAgain(try, time.Duration(v)*time.Millisecond)) {
				return nil, nil, ctx.Err()
			}
			continue
		}
		return nil, nil, malformed(l.op, reply)
	}
}

// lookAgain is the pause before the next look at another process's load, which is
// waited for no longer than left: short at first, and never in step with others.
func lookAgain(try int, left time.Duration) time.Duration {
	d := min(guardPoll, 5*time.Millisecond<<min(try, 5))
	return min(d/2+rand.N(d/2), left) + time.Millisecond
}

func decodeReservation(v []any) (*reservation, bool) {
	if len(v) != 2 {
		return nil, false
	}
	token, ok1 := v[0].(string)
	stored, ok2 := v[1].(string)
	return &reservation{token: token, stored: stored}, ok1 && ok2
}

// keep stores a loaded value if nothing has voided the reservation. It is the second
// round trip. A failure is signalled and not returned: the callers have what they
// asked for, and that the next one loads again is no harm to them.
func (c *CacheService) keep(ctx context.Context, l *cacheLoad, r *reservation, value []byte, ttl time.Duration) {
	op := conn.Op{Name: "cache.store", Key: l.op.Key}
	reply, err := c.core.command.Run(ctx, op, c.store, c.pair(l.op.Key), r.token, semantic.Milliseconds(ttl), string(value))
	stored, err := one(op, reply, err)
	if took := time.Since(r.made); err == nil && !stored && took >= max(reservationTTL, l.options.ClusterGuard) {
		err = fmt.Errorf("the load took %v, longer than its reservation", took.Round(time.Millisecond))
	}
	if err != nil && !errors.Is(err, semantic.ErrClosed) && ctx.Err() == nil {
		c.core.signals.CacheStoreFailed(l.op.Key, outcomeOf(err), err)
	}
}

// giveUp ends the guard of a load that stores nothing, so that the next process need not
// wait for it. Best effort: the guard lapses by itself.
func (c *CacheService) giveUp(ctx context.Context, l *cacheLoad, r *reservation) {
	if l.options.ClusterGuard == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonBudget)
	defer cancel()
	_, _ = c.core.command.Run(ctx, l.op, c.abandon, []string{c.loadKey(l.op.Key)}, r.stored)
}
