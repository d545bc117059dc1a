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

// bothOf are the count and the time of each call.
func bothOf(primitive string, calls ...string) []string {
	var all []string
	for _, call := range calls {
		all = append(all, primitive+".calls "+call+" 1", primitive+".duration "+call+" 1")
	}
	return all
}
