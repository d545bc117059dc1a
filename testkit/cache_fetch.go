package testkit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/flight"
)

// guardLook is how often a double looks at the load of another client.
const guardLook = 10 * time.Millisecond

// GetOrFetch implements [semantic.RemoteCacheProvider].
func (c *RemoteCacheProvider) GetOrFetch(ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
	const op = "cache.getOrFetch"
	if err := c.check(op, key, ttl); err != nil {
		return nil, err
	}
	if fetch == nil {
		return nil, &semantic.ArgumentError{Operation: op, Argument: "fetch", Value: "nil", Allowed: "a function"}
	}
	options, err := semantic.ResolveFetchOptions(op, opts...)
	if err != nil {
		return nil, err
	}
	value, err := c.flights.Do(ctx, key, func(ctx context.Context, publish func([]byte)) ([]byte, error) {
		value, load, err := c.readOrReserve(ctx, op, key, options.ClusterGuard)
		if load == nil {
			return value, err
		}
		value, err = flight.Call(ctx, fetch)
		var storeFor time.Duration
		if err == nil {
			storeFor = options.TTLOf(value, ttl)
		}
		if storeFor == 0 {
			c.backend.endGuard(key, load)
		}
		if p, ok := err.(*flight.PanicError); ok { //nolint:errorlint // of this fetch, not of another
			return nil, fmt.Errorf("%s %q: %w: %w", op, key, semantic.ErrFetchPanicked, p)
		}
		if err == nil && storeFor > 0 && ctx.Err() == nil {
			publish(value)
			c.backend.store(ctx, key, value, storeFor, load)
		}
		return value, err
	})
	switch {
	case errors.Is(err, flight.ErrGroupClosed):
		return nil, fmt.Errorf("%s %q: %w", op, key, semantic.ErrClosed)
	case errors.Is(err, flight.ErrLeft):
		return nil, fmt.Errorf("%s %q: %w", op, key, err)
	}
	return value, err
}

// readOrReserve returns the value, or the right to store one.
func (c *RemoteCacheProvider) readOrReserve(ctx context.Context, op, key string, guard time.Duration) (value []byte, load *cacheLoad, err error) {
	b := c.backend
	for {
		wait := false
		err := b.request(ctx, op, key, true, func() {
			var found bool
			load = nil
			if value, found = b.live(key); found {
				value = append([]byte{}, value...)
				return
			}
			now := b.clock.Now()
			load = b.loads[key]
			if wait = guard > 0 && load != nil && now.Before(load.guardEnds); wait {
				return
			}
			if load == nil {
				load = &cacheLoad{}
				b.loads[key] = load
			}
			if guard > 0 {
				load.guardEnds = now.Add(guard)
			}
		})
		if err != nil {
			return nil, nil, err
		}
		if !wait {
			return value, load, nil
		}
		looked := make(chan struct{})
		stop := b.clock.AfterFunc(guardLook, func() { close(looked) })
		select {
		case <-looked:
		case <-ctx.Done():
			stop()
			return nil, nil, ctx.Err()
		}
	}
}

// store stores a loaded value if nothing has voided its load.
func (b *CacheBackend) store(ctx context.Context, key string, value []byte, ttl time.Duration, load *cacheLoad) {
	_ = b.request(ctx, "cache.store", key, false, func() {
		if b.loads[key] == load {
			b.put(key, value, ttl)
		}
	})
}

// endGuard lets the next client load.
func (b *CacheBackend) endGuard(key string, load *cacheLoad) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loads[key] == load {
		delete(b.loads, key)
	}
}
