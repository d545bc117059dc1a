package coordfx_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/operationstore"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/telemetry"
)

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// TestOneTelemetryIsForAllParts: the services, the runner, the coordinator, the signals.
func TestOneTelemetryIsForAllParts(t *testing.T) {
	server, recorder := testkit.StartRedis(t), telemetry.New()
	var lock semantic.DistributedLock
	var runner *cronfx.Runner
	var coordinator operation.Coordinator
	app := fxtest.New(t, fx.NopLogger, coordfx.Module, coordfx.Operations,
		fx.Supply(coordfx.Config{Redis: redismodule.Config{URL: server.URL()}, Telemetry: recorder.Telemetry()},
			zap.NewNop(), operationstore.Config{Redis: redismodule.Config{URL: server.URL()}}),
		cronfx.Provide(func() cronfx.Job {
			return cronfx.Job{Name: "job", Schedule: "@yearly", Run: func(context.Context, cronfx.Tick) error { return nil }}
		}),
		fx.Populate(&lock, &runner, &coordinator))
	app.RequireStart()
	defer app.RequireStop()
	_, _ = lock.WithLock(t.Context(), "k", 20*time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done() // lost: a signal
		return nil
	})
	if _, err := runner.Trigger(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	_, err := coordinator.Begin(t.Context(), operation.Identity{
		Tenant: "acme", Operation: "charge", IdempotencyKey: "k1", Fingerprint: strings.Repeat("0", 64), DurableID: "payment-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	changes, err := recorder.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(changes, "\n")
	for _, want := range []string{
		"coord.lock.lost{} 1", "coord.cron.ticks{coord.job=job,coord.outcome=completed} 1",
		"coord.operation.gate.dispatched{} 1", "coord.signals{event=redis.lock.lost} 1",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in\n%s", want, all)
		}
	}
}

func TestABrokenProviderStopsTheAppWithTheSettingsName(t *testing.T) {
	broken := observability.Telemetry{Meter: telemetry.Broken{}}
	config := coordfx.Config{
		Redis: redismodule.Config{URL: "redis://localhost:6379"}, Mongo: mongolog.Config{URI: "mongodb://localhost/db"},
		SQS: sqsfanout.Config{QueueURL: "http://localhost/q.fifo"}, Telemetry: broken,
	}
	for name, use := range map[string]fx.Option{
		"redis Telemetry.Meter": fx.Invoke(func(semantic.RateLimiter) {}),
		"mongo Telemetry.Meter": fx.Invoke(func(semantic.IdempotencyLog) {}),
	} {
		err := fx.New(fx.NopLogger, coordfx.Module, fx.Supply(config, zap.NewNop()), use).Err()
		if err == nil || !strings.Contains(err.Error(), name+": not usable") {
			t.Errorf("%v, want the name %s", err, name)
		}
	}
}

// unusable is a provider that was not made to be used.
type unusable struct{ metric.MeterProvider }

func (unusable) Meter(string, ...metric.MeterOption) metric.Meter { panic("not made to be used") }

func TestAProviderThatPanicsStopsTheAppAndNotTheProcess(t *testing.T) {
	config := coordfx.Config{Redis: redismodule.Config{URL: "redis://localhost:6379"}, Telemetry: observability.Telemetry{Meter: unusable{}}}
	err := fx.New(fx.NopLogger, coordfx.Module, fx.Supply(config, zap.NewNop()), fx.Invoke(func(semantic.RateLimiter) {})).Err()
	if err == nil || !strings.Contains(err.Error(), "Telemetry.Meter: not usable") {
		t.Errorf("%v, want an error that names the setting", err)
	}
}
