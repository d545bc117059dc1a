package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/flight"
)

// CacheBackend is the memory that the clients of a [RemoteCacheProvider] double share.
// Safe for concurrent use.
type CacheBackend struct {
	injector
	clock semantic.Clock

	mu       sync.Mutex
	values   map[string]cachedValue
	loads    map[string]*cacheLoad
	requests int
}

type cachedValue struct {
	value   []byte
	expires time.Time
}

// cacheLoad is the right of the loads that have begun to store their value.
type cacheLoad struct {
	guardEnds time.Time
}

// NewCacheBackend returns an empty backend; a nil clock is the system's.
func NewCacheBackend(clock semantic.Clock) *CacheBackend {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &CacheBackend{clock: clock, values: map[string]cachedValue{}, loads: map[string]*cacheLoad{}}
}

// Client returns the cache as one more replica has it.
func (b *CacheBackend) Client(name string) *RemoteCacheProvider {
	return &RemoteCacheProvider{backend: b, name: name}
}

// Keys returns how many values are stored.
func (b *CacheBackend) Keys() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for key := range b.values {
		if _, found := b.live(key); found {
			n++
		}
	}
	return n
}

// Requests returns how many requests have reached the backend.
func (b *CacheBackend) Requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// live returns the unexpired value of key; the mutex is held.
func (b *CacheBackend) live(key string) ([]byte, bool) {
	v, found := b.values[key]
	if found && !b.clock.Now().Before(v.expires) {
		delete(b.values, key)
		return nil, false
	}
	return v.value, found
}

// put stores a copy and voids the loads; the mutex is held.
func (b *CacheBackend) put(key string, value []byte, ttl time.Duration) {
	b.values[key] = cachedValue{append([]byte{}, value...), b.clock.Now().Add(ttl)}
	delete(b.loads, key)
}

// request applies one request under the mutex, unless a fault keeps it from arriving.
func (b *CacheBackend) request(ctx context.Context, operation, key string, readOnly bool, apply func()) error {
	if err := b.before(ctx, operation, key); err != nil {
		if o, ok := errors.AsType[*semantic.OutcomeError](err); ok && readOnly {
			o.Outcome = semantic.OutcomeUnavailable
		}
		return err
	}
	b.mu.Lock()
	b.requests++
	apply()
	b.mu.Unlock()
	if lost, _ := b.replyLost(); lost {
		if readOnly {
			return &semantic.OutcomeError{Operation: operation, Key: key, Outcome: semantic.OutcomeUnavailable, Cause: errInjectedLost}
		}
		return unknown(operation, key)
	}
	return nil
}

// RemoteCacheProvider is an in-memory [semantic.RemoteCacheProvider].
type RemoteCacheProvider struct {
	backend *CacheBackend
	name    string
	flights flight.Group
	closed  atomic.Bool
}

var _ semantic.RemoteCacheProvider = (*RemoteCacheProvider)(nil)

// NewRemoteCacheProvider returns the only client of a backend of its own; a nil clock is
// the system's.
func NewRemoteCacheProvider(clock semantic.Clock) *RemoteCacheProvider {
	return NewCacheBackend(clock).Client("test")
}

// Backend returns what the client's values are kept in.
func (c *RemoteCacheProvider) Backend() *CacheBackend { return c.backend }

// Close makes every call return [semantic.ErrClosed], cancels the fetches that are
// running and waits for them for up to five seconds.
func (c *RemoteCacheProvider) Close() {
	c.closed.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.flights.Close(ctx)
}

// Get implements [semantic.RemoteCacheProvider].
func (c *RemoteCacheProvider) Get(ctx context.Context, key string) (value []byte, found bool, err error) {
	const op = "cache.get"
	if err := c.check(op, key, semantic.MinTTL); err != nil {
		return nil, false, err
	}
	err = c.backend.request(ctx, op, key, true, func() {
		value, found = c.backend.live(key)
		value = bytes.Clone(value)
	})
	if err != nil {
		return nil, false, err
	}
	return value, found, nil
}

// Set implements [semantic.RemoteCacheProvider].
func (c *RemoteCacheProvider) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	_, err := c.put(ctx, "cache.set", key, value, ttl, func(bool) bool { return true })
	return err
}

// Delete implements [semantic.RemoteCacheProvider].
func (c *RemoteCacheProvider) Delete(ctx context.Context, keys ...string) error {
	const op = "cache.delete"
	for _, key := range keys {
		if err := c.check(op, key, semantic.MinTTL); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return c.alive(op, "")
	}
	defer c.flights.Forget(keys...)
	return c.backend.request(ctx, op, keys[0], false, func() {
		for _, key := range keys {
			delete(c.backend.values, key)
			delete(c.backend.loads, key)
		}
	})
}

// Add implements [semantic.RemoteCacheProvider].
func (c *RemoteCacheProvider) Add(ctx context.Context, key string, value []byte, ttl time.Duration) (added bool, err error) {
	return c.put(ctx, "cache.add", key, value, ttl, func(found bool) bool { return !found })
}

// Replace implements [semantic.RemoteCacheProvider].
func (c *RemoteCacheProvider) Replace(ctx context.Context, key string, value []byte, ttl time.Duration) (replaced bool, err error) {
	return c.put(ctx, "cache.replace", key, value, ttl, func(found bool) bool { return found })
}

// Touch implements [semantic.RemoteCacheProvider].
func (c *RemoteCacheProvider) Touch(ctx context.Context, key string, ttl time.Duration) (touched bool, err error) {
	const op = "cache.touch"
	if err := c.check(op, key, ttl); err != nil {
		return false, err
	}
	err = c.backend.request(ctx, op, key, false, func() {
		var value []byte
		if value, touched = c.backend.live(key); touched {
			c.backend.values[key] = cachedValue{value, c.backend.clock.Now().Add(ttl)}
		}
	})
	return touched && err == nil, err
}

// put stores value where wanted allows it, given whether there is one.
func (c *RemoteCacheProvider) put(ctx context.Context, op, key string, value []byte, ttl time.Duration, wanted func(found bool) bool) (stored bool, err error) {
	if err := c.check(op, key, ttl); err != nil {
		return false, err
	}
	defer c.flights.Forget(key)
	err = c.backend.request(ctx, op, key, false, func() {
		_, found := c.backend.live(key)
		if stored = wanted(found); stored {
			c.backend.put(key, value, ttl)
		}
	})
	return stored && err == nil, err
}

func (c *RemoteCacheProvider) alive(op, key string) error {
	if c.closed.Load() {
		return fmt.Errorf("%s %q: %w", op, key, semantic.ErrClosed)
	}
	return nil
}

func (c *RemoteCacheProvider) check(op, key string, ttl time.Duration) error {
	if err := semantic.ValidateDuration(op, "ttl", ttl); err != nil {
		return err
	}
	if err := semantic.ValidateName(op, "key", key); err != nil {
		return err
	}
	return c.alive(op, key)
}
