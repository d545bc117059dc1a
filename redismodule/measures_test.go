package redismodule

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/telemetry"
)

// measuredCase is something that is done, and all that is measured of it.
type measuredCase struct {
	name    string
	do      func(t *testing.T, s *Services, network *faultNet)
	metrics []string // as [telemetry.Recorder.Expect] takes them, without "coord."
	spans   []string
}

// runMeasured runs each case on services of its own, on one server.
func runMeasured(t *testing.T, cases []measuredCase) {
	server := testkit.StartRedis(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			recorder, network := telemetry.New(), newFaultNet()
			s := openServices(t, 1, Config{
				URL: server.URL(), Namespace: "case-" + newToken(), CommandTimeout: 500 * time.Millisecond,
				Telemetry: recorder.Telemetry(),
			}, network)[0]
			c.do(t, s, network)
			var want []string
			for _, short := range c.metrics {
				want = append(want, "coord."+short)
			}
			recorder.Expect(t, want...)
			recorder.ExpectSpans(t, c.spans...)
			expectNoKeys(t, recorder)
		})
	}
}

// expectNoKeys: the key of every case is "secret-key", its holder "tenant-7".
func expectNoKeys(t *testing.T, recorder *telemetry.Recorder) {
	t.Helper()
	points, err := recorder.Points(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		if strings.Contains(p.String(), "secret-key") || strings.Contains(p.String(), "tenant-7") {
			t.Errorf("%v has a key or a tenant", p)
		}
	}
	for _, s := range recorder.Spans() {
		if telemetry.SpanAttribute(s, "coord.key") != "secret-key" {
			t.Errorf("span %s does not tell the key", s.Name())
		}
	}
}

const measuredKey = "secret-key"

func TestWhatALockMeasures(t *testing.T) {
	runMeasured(t, []measuredCase{
		{
			name: "acquire and release",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				s.Lock.Release(t.Context(), measuredKey, mustHold(t, s.Lock, measuredKey).Token)
			},
			metrics: []string{
				"lock.calls acquire acquired 1", "lock.duration acquire acquired 1",
				"lock.calls release released 1",
			},
			spans: []string{"coord.lock acquire: acquired Unset"},
		},
		{
			name: "contention is no error",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				mustHold(t, s.Lock, measuredKey)
				_, _ = s.Lock.Acquire(t.Context(), measuredKey, time.Minute)
				s.Lock.Release(t.Context(), measuredKey, "another's")
			},
			metrics: []string{
				"lock.calls acquire acquired 1", "lock.duration acquire acquired 1",
				"lock.calls acquire contended 1", "lock.duration acquire contended 1",
				"lock.calls release gone 1", "lock.duration release gone 1",
			},
			spans: []string{
				"coord.lock acquire: acquired Unset", "coord.lock acquire: contended Unset", "coord.lock release: gone Unset",
			},
		},
		{
			name: "a wait is no measure of the server",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				claim, err := s.Lock.Acquire(t.Context(), measuredKey, time.Minute, semantic.WithWait(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = s.Lock.Acquire(t.Context(), measuredKey, time.Minute, semantic.WithWait(10*time.Millisecond))
				s.Lock.Release(t.Context(), measuredKey, claim.Token)
			},
			metrics: []string{
				"lock.calls acquire acquired 1", "lock.wait acquire acquired 1",
				"lock.calls acquire contended 1", "lock.wait acquire contended 1",
				"lock.calls release released 1",
			},
			spans: []string{
				"coord.lock acquire: acquired Unset", "coord.lock acquire: contended Unset",
			},
		},
		{
			name: "redis is down",
			do: func(t *testing.T, s *Services, network *faultNet) {
				token := mustHold(t, s.Lock, measuredKey).Token
				heal := network.inject(testkit.FaultDown)
				_, _ = s.Lock.Acquire(t.Context(), measuredKey, time.Minute)
				s.Lock.Release(t.Context(), measuredKey, token)
				heal()
			},
			metrics: []string{
				"lock.calls acquire acquired 1", "lock.duration acquire acquired 1",
				"lock.calls acquire unavailable 1", "lock.duration acquire unavailable 1",
				"lock.calls release unavailable 1", "lock.duration release unavailable 1",
			},
			spans: []string{
				"coord.lock acquire: acquired Unset", "coord.lock acquire: unavailable Error", "coord.lock release: unavailable Error",
			},
		},
		{
			name: "an argument is wrong, the caller has left",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lock.Acquire(t.Context(), measuredKey, 0)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, _ = s.Lock.Acquire(ctx, measuredKey, time.Minute)
			},
			metrics: []string{
				"lock.calls acquire invalid 1", "lock.duration acquire invalid 1",
				"lock.calls acquire cancelled 1", "lock.duration acquire cancelled 1",
			},
			spans: []string{"coord.lock acquire: invalid Unset", "coord.lock acquire: cancelled Unset"},
		},
		{
			name: "WithLock",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lock.WithLock(t.Context(), measuredKey, time.Minute, func(context.Context) error { return errors.New("no") })
			},
			metrics: []string{
				"lock.calls acquire acquired 1", "lock.duration acquire acquired 1",
				"lock.calls release released 1", "lock.hold 1",
			},
			spans: []string{
				"coord.lock acquire: acquired Unset", "coord.lock with_lock: failed Error",
			},
		},
		{
			name: "WithLock outlives its lock",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lock.WithLock(t.Context(), measuredKey, 50*time.Millisecond, func(ctx context.Context) error {
					<-ctx.Done()
					pause(t.Context(), 20*time.Millisecond)
					return nil
				})
			},
			metrics: []string{
				"lock.calls acquire acquired 1", "lock.duration acquire acquired 1",
				"lock.calls release gone 1", "lock.duration release gone 1", "lock.hold 1", "lock.lost 1",
			},
			spans: []string{
				"coord.lock acquire: acquired Unset", "coord.lock release: gone Unset", "coord.lock with_lock: lost Error",
			},
		},
	})
}

// TestSpansAreChildrenOfTheCallers: and with WithLock, what happens under the lock is a
// child of it.
func TestSpansAreChildrenOfTheCallers(t *testing.T) {
	server, recorder := testkit.StartRedis(t), telemetry.New()
	s := openServices(t, 1, Config{URL: server.URL(), Telemetry: recorder.Telemetry()}, nil)[0]
	ctx, end := recorder.Start(t.Context(), "request")
	_, err := s.Lock.WithLock(ctx, measuredKey, time.Minute, func(ctx context.Context) error {
		_, _, err := s.Cache.Get(ctx, measuredKey)
		return err
	})
	end()
	if err != nil {
		t.Fatal(err)
	}
	parents := map[string]string{}
	names := map[string]string{}
	for _, span := range recorder.All() {
		names[span.SpanContext().SpanID().String()] = span.Name()
	}
	for _, span := range recorder.All() {
		parents[span.Name()] = names[span.Parent().SpanID().String()]
	}
	for child, parent := range map[string]string{
		"coord.lock with_lock": "request", "coord.lock acquire": "coord.lock with_lock", "coord.cache get": "coord.lock with_lock",
	} {
		if parents[child] != parent {
			t.Errorf("%s is a child of %q, want %q", child, parents[child], parent)
		}
	}
}

func TestABrokenProviderFailsTheConstruction(t *testing.T) {
	for name, broken := range map[string]observability.Telemetry{
		"redis Telemetry.Meter: not usable: metric coord.lock.calls: out of instruments": {Meter: telemetry.Broken{}},
		"redis Telemetry.Meter: not usable: it panicked":                                 {Meter: (*brokenPointer)(nil)},
	} {
		_, err := Open(Config{URL: "redis://localhost:6379", Telemetry: broken}, nil)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("open: %v, want %s", err, name)
		}
	}
}

// brokenPointer is a provider that is nil in an interface that is not.
type brokenPointer struct {
	noop.MeterProvider
	name string
}

func (b *brokenPointer) Meter(string, ...metric.MeterOption) metric.Meter {
	_ = b.name
	return noop.Meter{}
}

func TestWhatALeaseMeasures(t *testing.T) {
	const holder = "tenant-7"
	runMeasured(t, []measuredCase{
		{
			name: "every answer",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lease.Claim(t.Context(), measuredKey, holder, time.Minute)
				_, _ = s.Lease.Claim(t.Context(), measuredKey, "another", time.Minute)
				_, _ = s.Lease.TakeOver(t.Context(), measuredKey, "another", time.Minute)
				s.Lease.Release(t.Context(), measuredKey, holder)
				s.Lease.Release(t.Context(), measuredKey, "another")
				s.Lease.Release(t.Context(), measuredKey, "another")
			},
			metrics: bothOf("lease", "claim claimed", "claim held", "take_over taken_over", "release reclaimed", "release removed", "release no_holder"),
			spans: []string{
				"coord.lease claim: claimed Unset", "coord.lease claim: held Unset", "coord.lease take_over: taken_over Unset",
				"coord.lease release: reclaimed Unset", "coord.lease release: removed Unset", "coord.lease release: no_holder Unset",
			},
		},
		{
			name: "redis is down",
			do: func(t *testing.T, s *Services, network *faultNet) {
				defer network.inject(testkit.FaultDown)()
				_, _ = s.Lease.Claim(t.Context(), measuredKey, holder, time.Minute)
				s.Lease.Release(t.Context(), measuredKey, holder)
			},
			metrics: bothOf("lease", "claim unavailable", "release unavailable"),
			spans:   []string{"coord.lease claim: unavailable Error", "coord.lease release: unavailable Error"},
		},
		{
			name: "a hold that another takes over",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lease.Hold(t.Context(), measuredKey, holder, 300*time.Millisecond, func(ctx context.Context) error {
					_, _ = s.Lease.TakeOver(t.Context(), measuredKey, "another", time.Minute)
					<-ctx.Done()
					return nil
				})
			},
			metrics: append(bothOf("lease", "claim claimed", "take_over taken_over", "renew held", "release reclaimed"), "lease.hold 1", "lease.lost 1"),
			spans: []string{
				"coord.lease claim: claimed Unset", "coord.lease take_over: taken_over Unset", "coord.lease renew: held Unset",
				"coord.lease release: reclaimed Unset", "coord.lease hold: lost Error",
			},
		},
		{
			name: "a hold that renews",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Lease.Hold(t.Context(), measuredKey, holder, 600*time.Millisecond, func(context.Context) error {
					pause(t.Context(), 300*time.Millisecond)
					return nil
				})
			},
			metrics: append(bothOf("lease", "claim claimed", "renew renewed", "release removed"), "lease.hold 1"),
			spans: []string{
				"coord.lease claim: claimed Unset", "coord.lease renew: renewed Unset",
				"coord.lease release: removed Unset", "coord.lease hold: ran Unset",
			},
		},
	})
}

// bothOf are the count and the time of each call.
func bothOf(primitive string, calls ...string) []string {
	var all []string
	for _, call := range calls {
		all = append(all, primitive+".calls "+call+" 1", primitive+".duration "+call+" 1")
	}
	return all
}

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

func TestWhatARateLimiterMeasures(t *testing.T) {
	runMeasured(t, []measuredCase{
		{
			name: "allowed, denied, and denied without asking",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				for range 3 {
					_, _ = s.Limiter.TryAcquire(t.Context(), measuredKey, 1, semantic.PerMinute(1))
				}
			},
			// Taking the last token leaves nothing: the second answer is known already.
			metrics: []string{
				"limiter.calls try_acquire allowed 1", "limiter.duration try_acquire allowed 1",
				"limiter.calls try_acquire denied_locally 2", "limiter.duration try_acquire denied_locally 2",
			},
			spans: []string{
				"coord.limiter try_acquire: allowed Unset", "coord.limiter try_acquire: denied_locally Unset",
				"coord.limiter try_acquire: denied_locally Unset",
			},
		},
		{
			name: "denied by the server",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				_, _ = s.Limiter.TryAcquire(t.Context(), measuredKey, 2, semantic.PerMinute(3))
				_, _ = s.Limiter.TryAcquire(t.Context(), measuredKey, 2, semantic.PerMinute(3))
			},
			metrics: bothOf("limiter", "try_acquire allowed", "try_acquire denied"),
			spans:   []string{"coord.limiter try_acquire: allowed Unset", "coord.limiter try_acquire: denied Unset"},
		},
		{
			name: "a wait, one given up, an outage",
			do: func(t *testing.T, s *Services, network *faultNet) {
				limit := semantic.Limit{Max: 1, Window: 200 * time.Millisecond}
				_ = s.Limiter.Acquire(t.Context(), measuredKey, 1, limit)
				_ = s.Limiter.Acquire(t.Context(), measuredKey, 1, limit)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Millisecond, cancel)
				_ = s.Limiter.Acquire(ctx, measuredKey, 1, limit)
				heal := network.inject(testkit.FaultDown)
				_ = s.Limiter.Acquire(t.Context(), measuredKey, 1, semantic.PerMinute(5))
				heal()
			},
			metrics: []string{
				"limiter.calls acquire allowed 2", "limiter.wait acquire allowed 2",
				"limiter.calls acquire cancelled 1", "limiter.wait acquire cancelled 1",
				"limiter.calls acquire unavailable 1", "limiter.wait acquire unavailable 1",
			},
			spans: []string{
				"coord.limiter acquire: allowed Unset", "coord.limiter acquire: allowed Unset",
				"coord.limiter acquire: cancelled Unset", "coord.limiter acquire: unavailable Error",
			},
		},
	})
}

func TestTheWaitersOfALimiterAreALevel(t *testing.T) {
	server, recorder := testkit.StartRedis(t), telemetry.New()
	s := openServices(t, 1, Config{URL: server.URL(), Telemetry: recorder.Telemetry()}, nil)[0]
	if err := s.Limiter.Acquire(t.Context(), measuredKey, 1, semantic.PerHour(1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- s.Limiter.Acquire(ctx, measuredKey, 1, semantic.PerHour(1)) }()
	}
	level := func() (value float64) {
		points, err := recorder.Points(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range points {
			if p.Name == "coord.limiter.waiters" {
				value = p.Value
			}
		}
		return value
	}
	for deadline := time.Now().Add(10 * time.Second); level() != 2 && time.Now().Before(deadline); {
		pause(t.Context(), time.Millisecond)
	}
	if got := level(); got != 2 {
		t.Errorf("%v waiters, want 2", got)
	}
	cancel()
	<-done
	<-done
	if got := level(); got != 0 {
		t.Errorf("%v waiters after all have left, want none", got)
	}
}

func TestWhatABroadcastMeasures(t *testing.T) {
	// heard subscribes, and returns a channel that has what the handler was called with.
	heard := func(t *testing.T, s *Services, handle func(), opts ...semantic.SubscribeOption) chan struct{} {
		t.Helper()
		calls := make(chan struct{}, 16)
		_, err := s.Broadcast.Subscribe(t.Context(), measuredKey, func(context.Context, semantic.Message) {
			defer func() { calls <- struct{}{} }()
			handle()
		}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return calls
	}
	// closed waits until the worker has counted what the handler was called with last.
	closed := func(t *testing.T, s *Services) {
		t.Helper()
		if err := s.Broadcast.close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runMeasured(t, []measuredCase{
		{
			name: "a message is published and delivered",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				calls := heard(t, s, func() {})
				_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				<-calls
				closed(t, s)
			},
			metrics: append(bothOf("broadcast", "subscribe subscribed", "publish published"), "broadcast.messages delivered 1"),
			spans:   []string{"coord.broadcast subscribe: subscribed Unset", "coord.broadcast publish: published Unset"},
		},
		{
			name: "a handler that panics, a message that is none",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				calls := heard(t, s, func() { panic("no") })
				_, err := s.core.command.Do(t.Context(), conn.Op{Name: "test"}, "PUBLISH", s.Broadcast.key(measuredKey), "no envelope")
				if err != nil {
					t.Fatal(err)
				}
				_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				<-calls
				pause(t.Context(), 50*time.Millisecond) // the other one was published before
				closed(t, s)
			},
			metrics: append(bothOf("broadcast", "subscribe subscribed", "publish published"), "broadcast.messages panicked 1", "broadcast.messages bad 1"),
			spans:   []string{"coord.broadcast subscribe: subscribed Unset", "coord.broadcast publish: published Unset"},
		},
		{
			name: "a queue that overflows",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				started, busy := make(chan struct{}, 16), make(chan struct{})
				gap := make(chan semantic.Gap, 1)
				handle := func() {
					started <- struct{}{}
					<-busy
				}
				heard(t, s, handle, semantic.WithQueue(1), semantic.WithGapHandler(func(_ context.Context, g semantic.Gap) { gap <- g }))
				// The first is being handled, the second waits, two find no room.
				_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				<-started
				for range 3 {
					_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				}
				pause(t.Context(), 100*time.Millisecond) // they arrive
				close(busy)
				<-gap
				closed(t, s)
			},
			metrics: []string{
				"broadcast.calls subscribe subscribed 1", "broadcast.duration subscribe subscribed 1",
				"broadcast.calls publish published 4", "broadcast.duration publish published 4",
				"broadcast.messages delivered 2", "broadcast.messages overflow 2", "broadcast.gaps overflow 1",
			},
			spans: []string{
				"coord.broadcast subscribe: subscribed Unset", "coord.broadcast publish: published Unset", "coord.broadcast publish: published Unset",
				"coord.broadcast publish: published Unset", "coord.broadcast publish: published Unset",
			},
		},
		{
			name: "redis is down",
			do: func(t *testing.T, s *Services, network *faultNet) {
				defer network.inject(testkit.FaultDown)()
				_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				_, _ = s.Broadcast.Subscribe(t.Context(), measuredKey, func(context.Context, semantic.Message) {})
			},
			metrics: bothOf("broadcast", "publish unavailable", "subscribe unavailable"),
			spans:   []string{"coord.broadcast publish: unavailable Error", "coord.broadcast subscribe: unavailable Error"},
		},
	})
}
