package redismodule

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestWhatACacheMeasures(t *testing.T) {
	value := []byte("v")
	fetch := func(context.Context) ([]byte, error) { return value, nil }
	runMeasured(t, []measuredCase{
		{
			name: "every answer of the plain verbs",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				ctx := t.Context()
				_, _, _ = s.Cache.Get(ctx, measuredKey)
				_, _ = s.Cache.Replace(ctx, measuredKey, value, time.Minute)
				_, _ = s.Cache.Touch(ctx, measuredKey, time.Minute)
				_, _ = s.Cache.Add(ctx, measuredKey, value, time.Minute)
				_, _ = s.Cache.Add(ctx, measuredKey, value, time.Minute)
				_, _ = s.Cache.Replace(ctx, measuredKey, value, time.Minute)
				_, _ = s.Cache.Touch(ctx, measuredKey, time.Minute)
				_, _, _ = s.Cache.Get(ctx, measuredKey)
				_ = s.Cache.Set(ctx, measuredKey, value, time.Minute)
				_ = s.Cache.Delete(ctx, measuredKey)
			},
			metrics: bothOf("cache", "get miss", "replace miss", "touch miss", "add stored", "add exists", "replace stored",
				"touch touched", "get hit", "set stored", "delete deleted"),
			spans: []string{
				"coord.cache get: miss Unset", "coord.cache replace: miss Unset", "coord.cache touch: miss Unset",
				"coord.cache add: stored Unset", "coord.cache add: exists Unset", "coord.cache replace: stored Unset",
				"coord.cache touch: touched Unset", "coord.cache get: hit Unset", "coord.cache set: stored Unset",
				"coord.cache delete: deleted Unset",
			},
		},
		{
			name: "a load, a hit, a loader that fails",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Cache.GetOrFetch(t.Context(), measuredKey, time.Minute, func(context.Context) ([]byte, error) { return nil, errors.New("no") })
				_, _ = s.Cache.GetOrFetch(t.Context(), measuredKey, time.Minute, fetch)
				_, _ = s.Cache.GetOrFetch(t.Context(), measuredKey, time.Minute, fetch)
			},
			metrics: []string{
				"cache.calls get_or_fetch failed 1", "cache.wait get_or_fetch failed 1", "cache.fetch failed 1",
				"cache.calls get_or_fetch loaded 1", "cache.wait get_or_fetch loaded 1", "cache.fetch loaded 1",
				"cache.calls get_or_fetch hit 1", "cache.wait get_or_fetch hit 1",
			},
			spans: []string{
				"coord.cache get_or_fetch: failed Error", "coord.cache get_or_fetch: loaded Unset", "coord.cache get_or_fetch: hit Unset",
			},
		},
		{
			name: "a load that another caller shares",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				loading, go2 := make(chan struct{}), make(chan struct{})
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = s.Cache.GetOrFetch(t.Context(), measuredKey, time.Minute, func(context.Context) ([]byte, error) {
						close(loading)
						<-go2
						return value, nil
					})
				}()
				<-loading
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(50*time.Millisecond, func() { close(go2) })
				_, _ = s.Cache.GetOrFetch(ctx, measuredKey, time.Minute, fetch)
				cancel()
				<-done
			},
			metrics: []string{
				"cache.calls get_or_fetch loaded 1", "cache.wait get_or_fetch loaded 1", "cache.fetch loaded 1",
				"cache.calls get_or_fetch shared 1", "cache.wait get_or_fetch shared 1",
			},
			spans: []string{"coord.cache get_or_fetch: loaded Unset", "coord.cache get_or_fetch: shared Unset"},
		},
		{
			name: "what a typed view finds",
			do: func(t *testing.T, s *Services, network *faultNet) {
				typed, err := semantic.NewCache(s.Cache, semantic.CacheConfig[int]{Prefix: "secret-", TTL: time.Minute, AbsentTTL: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				_, _, _ = typed.Get(t.Context(), "key")
				_, _ = typed.GetOrFetch(t.Context(), "key", func(context.Context) (int, error) { return 0, semantic.ErrAbsent })
				_, _, _ = typed.Get(t.Context(), "key")
				_ = typed.Set(t.Context(), "key", 7)
				_, _, _ = typed.Get(t.Context(), "key")
				_ = s.Cache.Set(t.Context(), measuredKey, []byte("no header"), time.Minute)
				_, _, _ = typed.Get(t.Context(), "key")
				heal := network.inject(testkit.FaultDown)
				_, _, _ = typed.Get(t.Context(), "key")
				heal()
			},
			metrics: []string{
				"cache.lookups miss 2", "cache.lookups absent 1", "cache.lookups hit 1", "cache.lookups corrupt 1", "cache.lookups error 1",
				"cache.calls get miss 1", "cache.duration get miss 1", "cache.calls get hit 3", "cache.duration get hit 3",
				"cache.calls get unavailable 1", "cache.duration get unavailable 1",
				"cache.calls get_or_fetch loaded 1", "cache.wait get_or_fetch loaded 1", "cache.fetch loaded 1",
				"cache.calls set stored 2", "cache.duration set stored 2",
			},
			spans: []string{
				"coord.cache get: miss Unset", "coord.cache get: hit Unset", "coord.cache get: hit Unset", "coord.cache get: hit Unset",
				"coord.cache get: unavailable Error", "coord.cache get_or_fetch: loaded Unset",
				"coord.cache set: stored Unset", "coord.cache set: stored Unset",
			},
		},
	})
}
