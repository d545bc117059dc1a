package recipes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/telemetry"
)

func TestAnObservedService(t *testing.T) {
	server, recorder := testkit.StartRedis(t), telemetry.New()
	var lock semantic.DistributedLock
	var mux *http.ServeMux
	app := fxtest.New(t, fx.NopLogger, fx.Supply(zap.NewNop()), fx.Populate(&lock, &mux),
		Observed(coordfx.Config{Redis: redismodule.Config{URL: server.URL()}}, recorder.Telemetry().Meter, recorder.Telemetry().Tracer))
	probe := func(want int) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
		if w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	probe(http.StatusServiceUnavailable)
	app.RequireStart()
	probe(http.StatusOK)
	if _, err := lock.Acquire(t.Context(), "k", time.Minute); err != nil {
		t.Fatal(err)
	}
	recorder.Expect(t, "coord.lock.calls acquire acquired 1", "coord.lock.duration acquire acquired 1")
	recorder.ExpectSpans(t, "coord.lock acquire: acquired Unset")
	app.RequireStop()
	probe(http.StatusServiceUnavailable)
}

func TestTheProbeOfATest(t *testing.T) {
	world := testkit.NewWorld(nil)
	world.Health = health.New()
	app := fxtest.New(t, fx.NopLogger, testkit.ModuleOf(world))
	app.RequireStart()
	defer app.RequireStop()

	heal := world.Inject(testkit.FaultDown)
	if report := world.Health.Check(t.Context()); report.Ready() {
		t.Error("ready in an outage")
	}
	heal()
}

func TestWhatAServiceMeasures(t *testing.T) {
	server := testkit.StartRedis(t)
	recorder := telemetry.New()
	services, err := redismodule.Open(redismodule.Config{URL: server.URL(), Telemetry: recorder.Telemetry()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer services.Close(context.Background())

	_, _ = services.Limiter.TryAcquire(t.Context(), "tenant-7", 1, semantic.PerMinute(60))
	recorder.Expect(t, "coord.limiter.calls try_acquire allowed 1", "coord.limiter.duration try_acquire allowed 1")
	recorder.ExpectSpans(t, "coord.limiter try_acquire: allowed Unset")
}
