package redismodule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func fetchOf(value string) semantic.FetchFunc {
	return func(context.Context) ([]byte, error) { return []byte(value), nil }
}

// TestEachCacheCallCostsWhatItSays counts the commands on the wire.
func TestEachCacheCallCostsWhatItSays(t *testing.T) {
	server := testkit.StartRedis(t)
	network := newFaultNet()
	cache := openServices(t, 1, Config{URL: server.URL()}, network)[0].Cache
	ctx := t.Context()
	get := func(key string) func() {
		return func() {
			if got, err := cache.GetOrFetch(ctx, key, time.Minute, fetchOf("v")); string(got) != "v" || err != nil {
				t.Errorf("GetOrFetch: %q, %v", got, err)
			}
		}
	}
	many := make([]string, 500)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	for _, c := range []struct {
		name string
		cost int
		call func()
	}{
		{"a miss of GetOrFetch", 2, get("k")},
		{"a hit of GetOrFetch", 1, get("k")},
		{"Get", 1, func() { _, _, _ = cache.Get(ctx, "k") }},
		{"Set", 1, func() { _ = cache.Set(ctx, "k", nil, time.Minute) }},
		{"Add", 1, func() { _, _ = cache.Add(ctx, "k", nil, time.Minute) }},
		{"Replace", 1, func() { _, _ = cache.Replace(ctx, "k", nil, time.Minute) }},
		{"Touch", 1, func() { _, _ = cache.Touch(ctx, "k", time.Minute) }},
		{"Delete of 500 keys", 1, func() { _ = cache.Delete(ctx, many...) }},
		{"Delete of no keys", 0, func() { _ = cache.Delete(ctx) }},
	} {
		before := network.sent()
		c.call()
		if sent := network.sent() - before; sent != c.cost {
			t.Errorf("%s: %d commands, want %d", c.name, sent, c.cost)
		}
	}
}

// TestNoCacheKeyIsWithoutTTL: whatever is called, and whatever the reply, all keys end.
func TestNoCacheKeyIsWithoutTTL(t *testing.T) {
	server := testkit.StartRedis(t)
	network := newFaultNet()
	cache := openServices(t, 1, Config{URL: server.URL()}, network)[0].Cache
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		if random.IntN(5) == 0 {
			network.inject(testkit.FaultLoseReply)
		}
		key := fmt.Sprint("k", random.IntN(10))
		switch random.IntN(6) {
		case 0:
			_ = cache.Set(t.Context(), key, []byte("v"), time.Minute)
		case 1:
			_, _ = cache.Add(t.Context(), key, []byte("v"), time.Minute)
		case 2:
			_, _ = cache.Replace(t.Context(), key, []byte("v"), time.Minute)
		case 3:
			_, _ = cache.Touch(t.Context(), key, time.Minute)
		case 4:
			_ = cache.Delete(t.Context(), key)
		default:
			_, _ = cache.GetOrFetch(t.Context(), key, time.Minute, fetchOf(fmt.Sprint(i)))
		}
	}
	for _, key := range server.Must("KEYS", "coord:cache:*").([]any) {
		if left := server.Must("PTTL", key).(int64); left <= 0 || left > 60_000 {
			t.Errorf("%v: PTTL %d, want one within a minute", key, left)
		}
	}
}

func TestACacheKeyOfAnotherKindIsNeitherMissNorOutage(t *testing.T) {
	server := testkit.StartRedis(t)
	cache := openServices(t, 1, Config{URL: server.URL()}, nil)[0].Cache
	server.Must("LPUSH", cache.valueKey("k"), "x")
	if _, found, err := cache.Get(t.Context(), "k"); found || !errors.Is(err, semantic.ErrWrongType) || errors.Is(err, semantic.ErrUnavailable) {
		t.Errorf("Get: found %v, %v, want ErrWrongType", found, err)
	}
	_, err := cache.GetOrFetch(t.Context(), "k", time.Minute, func(context.Context) ([]byte, error) {
		t.Error("fetch ran")
		return nil, nil
	})
	if !errors.Is(err, semantic.ErrWrongType) {
		t.Errorf("GetOrFetch: %v, want ErrWrongType", err)
	}
}

// TestARefusedWriteIsUnavailable: a full server has provably not applied it, and still
// serves what it has.
func TestARefusedWriteIsUnavailable(t *testing.T) {
	server := testkit.StartRedis(t, testkit.WithRedisConfig("maxmemory-policy", "noeviction"))
	cache := openServices(t, 1, Config{URL: server.URL()}, nil)[0].Cache
	if err := cache.Set(t.Context(), "k", []byte("v"), time.Minute); err != nil {
		t.Fatal(err)
	}
	server.Must("CONFIG", "SET", "maxmemory", "1")
	if err := cache.Set(t.Context(), "k", []byte("new"), time.Minute); !errors.Is(err, semantic.ErrUnavailable) {
		t.Errorf("Set on a full server: %v, want ErrUnavailable", err)
	}
	if _, err := cache.GetOrFetch(t.Context(), "other", time.Minute, fetchOf("v")); !errors.Is(err, semantic.ErrUnavailable) {
		t.Errorf("GetOrFetch of a miss on a full server: %v, want ErrUnavailable", err)
	}
	if got, err := cache.GetOrFetch(t.Context(), "k", time.Minute, fetchOf("x")); string(got) != "v" || err != nil {
		t.Errorf("GetOrFetch of a hit on a full server: %q, %v, want the value", got, err)
	}
}

// TestLoadFailuresAreSignalled: what the caller is not told, somebody is.
func TestLoadFailuresAreSignalled(t *testing.T) {
	server := testkit.StartRedis(t)
	seen, logs := observer.New(zapcore.DebugLevel)
	network := newFaultNet()
	s, err := Open(Config{URL: server.URL(), Dial: network.dial, CommandTimeout: 500 * time.Millisecond}, observability.New(zap.New(testkit.RecordSignals(seen))))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	event := func(key observability.Key) map[string]any {
		t.Helper()
		for _, e := range logs.TakeAll() {
			if m := e.ContextMap(); m["event"] == string(key) {
				return m
			}
		}
		t.Errorf("no %s was emitted", key)
		return nil
	}
	_, _ = s.Cache.GetOrFetch(t.Context(), "p", time.Minute, func(context.Context) ([]byte, error) { panic("boom") })
	if m := event(observability.CacheFetchPanicked); m["key"] != "p" || !strings.Contains(fmt.Sprint(m["error"]), "boom") || !strings.Contains(fmt.Sprint(m["error"]), "cache_server_test.go") {
		t.Errorf("signal %v, want the key, the panic and where it was", m)
	}
	for fault, outcome := range map[testkit.Fault]string{testkit.FaultDown: "UNAVAILABLE", testkit.FaultLoseReply: "UNKNOWN"} {
		heal := func() {}
		_, err := s.Cache.GetOrFetch(t.Context(), string(fault), time.Minute, func(context.Context) ([]byte, error) {
			heal = network.inject(fault)
			return []byte("v"), nil
		})
		heal()
		if err != nil {
			t.Errorf("%s: %v", fault, err)
		}
		if m := event(observability.CacheStoreFailed); m["key"] != string(fault) || m["outcome"] != outcome {
			t.Errorf("%s: signal %v, want outcome %s", fault, m, outcome)
		}
	}
	// A load that was overtaken by a change is no failure.
	_, _ = s.Cache.GetOrFetch(t.Context(), "k", time.Minute, func(ctx context.Context) ([]byte, error) {
		return []byte("v"), s.Cache.Delete(ctx, "k")
	})
	if left := logs.TakeAll(); len(left) != 0 {
		t.Errorf("signals of a load that a Delete overtook: %v", left)
	}
}

// TestAGuardOutlivesNobody: twenty processes, the first of which dies while it loads:
// one other loads in its place, once.
func TestAGuardOutlivesNobody(t *testing.T) {
	const processes = 20
	server := testkit.StartRedis(t)
	services := openServices(t, processes, Config{URL: server.URL(), PoolSize: 2}, nil)
	guard := semantic.WithClusterGuard(500 * time.Millisecond)
	loading, die := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, _ = services[0].Cache.GetOrFetch(context.Background(), "k", time.Minute, func(context.Context) ([]byte, error) {
			close(loading)
			<-die
			return nil, errors.New("dead")
		}, guard)
	})
	<-loading
	var fetches atomic.Int32
	var others sync.WaitGroup
	for _, s := range services[1:] {
		others.Go(func() {
			got, err := s.Cache.GetOrFetch(context.Background(), "k", time.Minute, func(context.Context) ([]byte, error) {
				fetches.Add(1)
				return []byte("v"), nil
			}, guard)
			if string(got) != "v" || err != nil {
				t.Errorf("GetOrFetch: %q, %v", got, err)
			}
		})
	}
	others.Wait()
	close(die)
	all.Wait()
	if fetches.Load() != 1 {
		t.Errorf("%d loads after the first process died, want 1", fetches.Load())
	}
}

// TestNoStaleValueIsStored runs loads, and deletes of the same keys by several
// replicas at once while replies are lost and delayed. A source's version only grows; a
// replica changes the source first and the cache then. Whoever reads the cache after a
// change was confirmed must not find an older version. FusionCache#535, lettuce#3481
func TestNoStaleValueIsStored(t *testing.T) {
	const seed, replicas, perReplica, keys = 99, 6, 400, 3
	t.Logf("seed %d", seed)
	server := testkit.StartRedis(t)
	network := newFaultNet()
	services := openServices(t, replicas, Config{URL: server.URL()}, network)
	network.withRandomFaults(seed, 25, 3*time.Millisecond)

	var source, confirmed [keys]atomic.Int64
	var reads, hits atomic.Int64
	var all sync.WaitGroup
	for r, s := range services {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(r)))
			for range perReplica {
				k := random.IntN(keys)
				key := fmt.Sprint("k", k)
				switch random.IntN(8) {
				case 0, 1: // a change: the source, then the cache
					version := source[k].Add(1)
					err := s.Cache.Delete(context.Background(), key)
					if err == nil {
						for { // confirmed[k] = max(confirmed[k], version)
							old := confirmed[k].Load()
							if old >= version || confirmed[k].CompareAndSwap(old, version) {
								break
							}
						}
					}
				case 2, 3, 4:
					_, _ = s.Cache.GetOrFetch(context.Background(), key, time.Minute, func(context.Context) ([]byte, error) {
						version := source[k].Load()
						pause(context.Background(), time.Millisecond)
						return fmt.Append(nil, version), nil
					})
				default:
					least := confirmed[k].Load()
					value, found, err := s.Cache.Get(context.Background(), key)
					reads.Add(1)
					if err != nil || !found {
						continue
					}
					hits.Add(1)
					var version int64
					if _, err := fmt.Sscan(string(value), &version); err != nil || version < least {
						t.Errorf("%s: version %s in the cache after version %d was confirmed", key, value, least)
					}
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d reads, %d hits", reads.Load(), hits.Load())
	if hits.Load() < reads.Load()/20 {
		t.Errorf("%d hits in %d reads: this shows little", hits.Load(), reads.Load())
	}
}

// TestAValueBelongsToTheCallOnceItIsPassed: a caller that has given up may reuse its
// slice although the call is still being sent.
func TestAValueBelongsToTheCallOnceItIsPassed(t *testing.T) {
	server := testkit.StartRedis(t)
	cache := openServices(t, 1, Config{URL: server.URL()}, nil)[0].Cache
	value := make([]byte, 1<<20)
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		_ = cache.Set(ctx, "k", value, time.Minute)
		cancel()
		for j := range value {
			value[j] = byte(i) // the race detector watches
		}
	}
	if got, found, err := cache.Get(t.Context(), "k"); err != nil || found && (got[0] != got[len(got)-1]) {
		t.Errorf("found %v, %v: a value was changed while it was sent", found, err)
	}
}

func BenchmarkCache(b *testing.B) {
	server, err := testkit.LaunchRedis(b.Context(), b.TempDir())
	if err != nil {
		b.Skip(err)
	}
	defer server.Stop()
	s, err := Open(Config{URL: server.URL()}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	ctx := context.Background()
	_ = s.Cache.Set(ctx, "k", make([]byte, 1024), time.Hour)
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = s.Cache.Get(ctx, "k")
		}
	})
	b.Run("get or fetch, hit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.Cache.GetOrFetch(ctx, "k", time.Hour, fetchOf("v"))
		}
	})
	b.Run("get or fetch, hit, parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				_, _ = s.Cache.GetOrFetch(ctx, "k", time.Hour, fetchOf("v"))
			}
		})
	})
	b.Run("get or fetch, miss", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_, _ = s.Cache.GetOrFetch(ctx, fmt.Sprint("m", i), time.Minute, fetchOf("v"))
		}
	})
}
