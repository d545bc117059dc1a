package redismodule

import (
	"context"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/telemetry"
)

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
