package redismodule

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/flight"
)

// deleteParallel is how many keys of one Delete are on their way at a time, on Cluster.
const deleteParallel = 16

// CacheService is the [semantic.RemoteCacheProvider] on Redis. Safe for concurrent use.
//
// A value is kept under <namespace>:cache:{key}. While it is being loaded, the key with
// :load behind it holds a reservation: the proof that neither a write nor a delete has
// come since the load began.
type CacheService struct {
	core    *core
	flights flight.Group
	closed  atomic.Bool

	write, reserve, store, abandon *conn.Script
}

var (
	_ semantic.RemoteCacheProvider = (*CacheService)(nil)
	_ semantic.CacheObserver       = (*CacheService)(nil)
)

func newCacheService(c *core) *CacheService {
	return &CacheService{
		core: c, write: script("cache_write"), reserve: script("cache_reserve"),
		store: script("cache_store"), abandon: script("cache_abandon"),
	}
}

// close makes every method return ErrClosed, also to those who wait for a load, cancels
// the loads that are running and waits for them to return until ctx ends.
func (c *CacheService) close(ctx context.Context) error {
	c.closed.Store(true)
	if err := c.flights.Close(ctx); err != nil {
		return fmt.Errorf("closing the cache: a loader has not returned: %w", err)
	}
	return nil
}

// ObserveLookup implements [semantic.CacheObserver]: what typed views found is counted.
func (c *CacheService) ObserveLookup(ctx context.Context, outcome semantic.CacheOutcome) {
	c.core.measure.cacheLookups.Add(ctx, 1, outcome.String())
}

// Get implements [semantic.RemoteCacheProvider].
func (c *CacheService) Get(ctx context.Context, key string) (value []byte, found bool, err error) {
	_, call := c.core.measure.cacheGet.Begin(ctx, key)
	defer func() { call.End(answerOr(err, found, "hit", "miss"), err) }()
	op := conn.Op{Name: "cache.get", Key: key, ReadOnly: true}
	if err := c.check(op); err != nil {
		return nil, false, err
	}
	reply, err := c.core.command.Do(ctx, op, "GET", c.valueKey(key))
	if err != nil || reply == nil {
		return nil, false, err
	}
	s, ok := reply.(string)
	if !ok {
		return nil, false, malformed(op, reply)
	}
	return []byte(s), true, nil
}

// Set implements [semantic.RemoteCacheProvider].
func (c *CacheService) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	_, err := c.put(ctx, c.core.measure.cacheSet, "cache.set", "always", key, value, ttl)
	return err
}

// Delete implements [semantic.RemoteCacheProvider].
func (c *CacheService) Delete(ctx context.Context, keys ...string) (err error) {
	const name = "cache.delete"
	_, call := c.core.measure.cacheDelete.Begin(ctx, first(keys))
	defer func() { call.End(answerOr(err, true, "deleted", ""), err) }()
	for _, key := range keys {
		if err := c.check(conn.Op{Name: name, Key: key}); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return c.alive(conn.Op{Name: name})
	}
	// Whatever becomes of the command, it may be applied.
	defer c.flights.Forget(keys...)
	if c.core.config.Mode != Cluster {
		return c.remove(ctx, conn.Op{Name: name, Key: keys[0]}, keys...)
	}
	var group errgroup.Group
	group.SetLimit(deleteParallel)
	failures := make([]error, len(keys))
	for i, key := range keys {
		group.Go(func() error {
			failures[i] = c.remove(ctx, conn.Op{Name: name, Key: key}, key)
			return nil
		})
	}
	_ = group.Wait() // the failures are in their places
	return errors.Join(failures...)
}

// first is the key that a span tells of several.
func first(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// remove deletes the values of keys and voids their loads. One round trip.
func (c *CacheService) remove(ctx context.Context, op conn.Op, keys ...string) error {
	args := make([]any, 0, 1+2*len(keys))
	args = append(args, "DEL")
	for _, key := range keys {
		args = append(args, c.valueKey(key), c.loadKey(key))
	}
	_, err := c.core.command.Do(ctx, op, args...)
	return err
}

// Add implements [semantic.RemoteCacheProvider].
func (c *CacheService) Add(ctx context.Context, key string, value []byte, ttl time.Duration) (added bool, err error) {
	return c.put(ctx, c.core.measure.cacheAdd, "cache.add", "add", key, value, ttl)
}

// Replace implements [semantic.RemoteCacheProvider].
func (c *CacheService) Replace(ctx context.Context, key string, value []byte, ttl time.Duration) (replaced bool, err error) {
	return c.put(ctx, c.core.measure.cacheReplace, "cache.replace", "replace", key, value, ttl)
}

// Touch implements [semantic.RemoteCacheProvider].
func (c *CacheService) Touch(ctx context.Context, key string, ttl time.Duration) (touched bool, err error) {
	_, call := c.core.measure.cacheTouch.Begin(ctx, key)
	defer func() { call.End(answerOr(err, touched, "touched", "miss"), err) }()
	op := conn.Op{Name: "cache.touch", Key: key}
	if err := c.checkTTL(op, ttl); err != nil {
		return false, err
	}
	reply, err := c.core.command.Do(ctx, op, "PEXPIRE", c.valueKey(key), semantic.Milliseconds(ttl))
	return one(op, reply, err)
}

// put stores value in one of the modes of the write script. One round trip.
func (c *CacheService) put(ctx context.Context, measure *observability.Operation, name, mode, key string, value []byte, ttl time.Duration) (stored bool, err error) {
	_, call := measure.Begin(ctx, key)
	refused := "miss"
	if mode == "add" {
		refused = "exists"
	}
	defer func() { call.End(answerOr(err, stored, "stored", refused), err) }()
	op := conn.Op{Name: name, Key: key}
	if err := c.checkTTL(op, ttl); err != nil {
		return false, err
	}
	defer c.flights.Forget(key)
	// A string: a call that is given up may still be sending when the caller reuses
	// its slice.
	reply, err := c.core.command.Run(ctx, op, c.write, c.pair(key), mode, semantic.Milliseconds(ttl), string(value))
	return one(op, reply, err)
}

func (c *CacheService) valueKey(key string) string { return c.core.keys.key(kindCache, key, "") }
func (c *CacheService) loadKey(key string) string  { return c.core.keys.key(kindCache, key, ":load") }
func (c *CacheService) pair(key string) []string   { return []string{c.valueKey(key), c.loadKey(key)} }

func (c *CacheService) alive(op conn.Op) error {
	if c.closed.Load() {
		return fmt.Errorf("%s %q: %w", op.Name, op.Key, semantic.ErrClosed)
	}
	return nil
}

func (c *CacheService) check(op conn.Op) error {
	if err := semantic.ValidateName(op.Name, "key", op.Key); err != nil {
		return err
	}
	return c.alive(op)
}

func (c *CacheService) checkTTL(op conn.Op, ttl time.Duration) error {
	if err := semantic.ValidateDuration(op.Name, "ttl", ttl); err != nil {
		return err
	}
	return c.check(op)
}

// one decodes a reply of 1 or 0.
func one(op conn.Op, reply any, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, ok := reply.(int64)
	if !ok {
		return false, malformed(op, reply)
	}
	return n == 1, nil
}
