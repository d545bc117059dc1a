package testkit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// cacheBug is a cache that breaks one promise.
type cacheBug struct {
	*RemoteCacheProvider
	get     func(c *RemoteCacheProvider, ctx context.Context, key string) ([]byte, bool, error)
	set     func(c *RemoteCacheProvider, ctx context.Context, key string, value []byte, ttl time.Duration) error
	delete  func(c *RemoteCacheProvider, ctx context.Context, keys ...string) error
	fetch   func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error)
	replace func(c *RemoteCacheProvider, ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error)
	touch   func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration) (bool, error)
}

func (b *cacheBug) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if b.get != nil {
		return b.get(b.RemoteCacheProvider, ctx, key)
	}
	return b.RemoteCacheProvider.Get(ctx, key)
}

func (b *cacheBug) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if b.set != nil {
		return b.set(b.RemoteCacheProvider, ctx, key, value, ttl)
	}
	return b.RemoteCacheProvider.Set(ctx, key, value, ttl)
}

func (b *cacheBug) Delete(ctx context.Context, keys ...string) error {
	if b.delete != nil {
		return b.delete(b.RemoteCacheProvider, ctx, keys...)
	}
	return b.RemoteCacheProvider.Delete(ctx, keys...)
}

func (b *cacheBug) GetOrFetch(ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
	if b.fetch != nil {
		return b.fetch(b.RemoteCacheProvider, ctx, key, ttl, fetch, opts...)
	}
	return b.RemoteCacheProvider.GetOrFetch(ctx, key, ttl, fetch, opts...)
}

func (b *cacheBug) Replace(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	if b.replace != nil {
		return b.replace(b.RemoteCacheProvider, ctx, key, value, ttl)
	}
	return b.RemoteCacheProvider.Replace(ctx, key, value, ttl)
}

func (b *cacheBug) Touch(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if b.touch != nil {
		return b.touch(b.RemoteCacheProvider, ctx, key, ttl)
	}
	return b.RemoteCacheProvider.Touch(ctx, key, ttl)
}

// cacheAside is a GetOrFetch as it is often written: read, load, write.
func cacheAside(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, _ ...semantic.FetchOption) ([]byte, error) {
	value, found, err := c.Get(ctx, key)
	if found || err != nil {
		return value, err
	}
	if value, err = fetch(ctx); err != nil {
		return nil, err
	}
	return value, c.Set(ctx, key, value, ttl)
}

// naiveFlight shares loads as a plain single flight does, under the first caller's context.
type naiveFlight struct {
	mu    sync.Mutex
	calls map[string]*naiveCall
}

type naiveCall struct {
	done  chan struct{}
	value []byte
	err   error
}

func (n *naiveFlight) do(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, _ ...semantic.FetchOption) ([]byte, error) {
	n.mu.Lock()
	if n.calls == nil {
		n.calls = map[string]*naiveCall{}
	}
	if call := n.calls[key]; call != nil {
		n.mu.Unlock()
		<-call.done
		return call.value, call.err
	}
	call := &naiveCall{done: make(chan struct{})}
	n.calls[key] = call
	n.mu.Unlock()
	call.value, call.err = cacheAside(c, ctx, key, ttl, fetch)
	n.mu.Lock()
	delete(n.calls, key)
	n.mu.Unlock()
	close(call.done)
	return call.value, call.err
}

// TestRemoteCacheProviderSuiteBites shows that each broken cache fails the case named for it.
func TestRemoteCacheProviderSuiteBites(t *testing.T) {
	const (
		outage = "an outage is an error from every method, never a miss, and no fetch runs"
		stale  = "a load that began before a change does not store its value afterwards"
		oneFor = "a thousand concurrent callers share one fetch"
	)
	for _, seeded := range []struct {
		bug  string
		fail string // the case that must catch it
		cacheBug
	}{
		{"ttl ignored", "a value lives for its ttl, and no longer", cacheBug{
			set: func(c *RemoteCacheProvider, ctx context.Context, key string, value []byte, _ time.Duration) error {
				return c.Set(ctx, key, value, longTTL)
			}}},
		{"a short ttl becomes an hour", "GetOrFetch fetches on a miss, stores for its ttl, and reads on a hit", cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
				if ttl < time.Second {
					ttl = time.Hour
				}
				return c.GetOrFetch(ctx, key, ttl, fetch, opts...)
			}}},
		{"an empty value is a miss", "nil is stored as an empty value, and found", cacheBug{ // beckn-onix#717
			get: func(c *RemoteCacheProvider, ctx context.Context, key string) ([]byte, bool, error) {
				value, found, err := c.Get(ctx, key)
				return value, found && len(value) > 0, err
			}}},
		{"only the first key is deleted", "Delete removes every key it is given and no other", cacheBug{
			delete: func(c *RemoteCacheProvider, ctx context.Context, keys ...string) error {
				return c.Delete(ctx, keys[:min(1, len(keys))]...)
			}}},
		{"a save revives a session", "Replace never revives a deleted value", cacheBug{ // connect-redis#328
			replace: func(c *RemoteCacheProvider, ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
				return true, c.Set(ctx, key, value, ttl)
			}}},
		{"touch makes a value", "Touch prolongs a value and never makes one", cacheBug{
			touch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration) (bool, error) {
				if touched, err := c.Touch(ctx, key, ttl); touched || err != nil {
					return touched, err
				}
				return true, c.Set(ctx, key, nil, ttl)
			}}},
		{"an outage is a miss", outage, cacheBug{ // PostHog/posthog#40704
			get: func(c *RemoteCacheProvider, ctx context.Context, key string) ([]byte, bool, error) {
				value, found, _ := c.Get(ctx, key)
				return value, found, nil
			}}},
		{"an outage runs the loader", outage, cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
				if c.backend.has(FaultDown) {
					return fetch(ctx)
				}
				return c.GetOrFetch(ctx, key, ttl, fetch, opts...)
			}}},
		{"a failed store fails the call", "a fetched value that cannot be stored is returned all the same", cacheBug{fetch: cacheAside}},
		{"a load stores over a change", stale, cacheBug{fetch: cacheAside}}, // FusionCache#535
		{"delete leaves loads alone", stale, cacheBug{
			delete: func(c *RemoteCacheProvider, _ context.Context, keys ...string) error {
				c.backend.mu.Lock()
				defer c.backend.mu.Unlock()
				for _, key := range keys {
					delete(c.backend.values, key)
				}
				return nil
			}}},
		{"a value that came and went is not noticed", "a value that came and went during a load keeps it from storing", cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, _ ...semantic.FetchOption) ([]byte, error) {
				value, found, err := c.Get(ctx, key)
				if found || err != nil {
					return value, err
				}
				if value, err = fetch(ctx); err != nil {
					return nil, err
				}
				_, err = c.Add(ctx, key, value, ttl) // only if there is none now
				return value, err
			}}},
		{"a new load takes the reservation of the one before", "loads that follow each other closely do not keep each other from storing", cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
				if _, found, _ := c.Get(ctx, key); !found {
					c.backend.mu.Lock()
					delete(c.backend.loads, key)
					c.backend.mu.Unlock()
				}
				load := func(ctx context.Context) ([]byte, error) {
					value, err := fetch(ctx)
					c.backend.mu.Lock()
					delete(c.backend.loads, key) // as if others kept coming
					c.backend.mu.Unlock()
					return value, err
				}
				return c.GetOrFetch(ctx, key, ttl, load, opts...)
			}}},
		{"every caller loads", oneFor, cacheBug{fetch: cacheAside}}, // eko/gocache#242
		{"a cancel fails all waiters", "a caller's cancel ends its own wait and nobody else's", cacheBug{ // golang/go#41133
			fetch: new(naiveFlight).do}},
		{"the fetch outlives its callers", "a fetch that nobody waits for is cancelled, and the next caller starts anew", cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
				ctx = context.WithoutCancel(ctx)
				return c.GetOrFetch(ctx, key, ttl, fetch, opts...)
			}}},
		{"callers share one slice", "every caller of a shared fetch gets a value of its own", cacheBug{
			fetch: func() func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
				var mu sync.Mutex
				var last []byte
				return func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
					value, err := c.GetOrFetch(ctx, key, ttl, fetch, opts...)
					mu.Lock()
					defer mu.Unlock()
					if string(last) != string(value) && last == nil {
						last = value
					}
					return last, err
				}
			}()}},
		{"a panic is an empty value", "a fetch that panics or ends its goroutine is an error for every caller, once", cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
				value, err := c.GetOrFetch(ctx, key, ttl, fetch, opts...)
				if errors.Is(err, semantic.ErrFetchPanicked) {
					return nil, nil
				}
				return value, err
			}}},
		{"the guard is ignored", "with a guard one load runs in the cluster and all get its value", cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, _ ...semantic.FetchOption) ([]byte, error) {
				return c.GetOrFetch(ctx, key, ttl, fetch)
			}}},
		{"the guard never ends", "when the loading process dies one other loads in its place after the guard", cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, _ ...semantic.FetchOption) ([]byte, error) {
				return c.GetOrFetch(ctx, key, ttl, fetch, semantic.WithClusterGuard(semantic.MaxTTL))
			}}},
		{"all take over at once", "when the loading process dies one other loads in its place after the guard", cacheBug{
			fetch: func(c *RemoteCacheProvider, ctx context.Context, key string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) ([]byte, error) {
				return c.GetOrFetch(ctx, key, ttl, fetch)
			}}},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			var backend *CacheBackend
			wantFailure(t, seeded.fail, RemoteCacheProviderCases(), Backend[semantic.RemoteCacheProvider]{
				New: func(t T, n int) []semantic.RemoteCacheProvider {
					backend = NewCacheBackend(clock)
					var cs []semantic.RemoteCacheProvider
					for range n {
						broken := seeded.cacheBug
						broken.RemoteCacheProvider = backend.Client("broken")
						t.Cleanup(broken.RemoteCacheProvider.Close)
						cs = append(cs, &broken)
					}
					return cs
				},
				Advance: clock.Advance,
				Fault:   func(_ T, f Fault) func() { return backend.Inject(f) },
			})
		})
	}
}
