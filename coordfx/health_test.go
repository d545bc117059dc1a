package coordfx_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/operationstore"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// probe is what an orchestrator sees.
func probe(h http.Handler) (code int, body string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
	return w.Code, w.Body.String()
}

func TestOnlyWhatTheServiceInjectsIsChecked(t *testing.T) {
	server := testkit.StartRedis(t)
	for name, c := range map[string]struct {
		use   fx.Option
		parts string
	}{
		"nothing":        {fx.Options(), ""},
		"a cache":        {fx.Invoke(func(semantic.RemoteCacheProvider) {}), "redis"},
		"a lock":         {fx.Invoke(func(semantic.DistributedLock) {}), "redis redis_subscriber"},
		"a coordinator":  {fx.Options(coordfx.Operations, fx.Invoke(func(operation.Coordinator) {})), "operations"},
		"a lock besides": {fx.Options(coordfx.Operations, fx.Invoke(func(operation.Coordinator, semantic.DistributedLock) {})), "operations redis redis_subscriber"},
	} {
		t.Run(name, func(t *testing.T) {
			h := coordfx.NewHealth()
			config := coordfx.Config{
				// Of these, one does not exist; what nobody injects is never asked.
				Redis: redismodule.Config{URL: server.URL()}, Mongo: mongolog.Config{URI: "mongodb://localhost:1/none"},
				SQS: sqsfanout.Config{QueueURL: "http://localhost:1/none.fifo"}, Health: h,
			}
			app := fxtest.New(t, fx.NopLogger, coordfx.Module, c.use,
				fx.Supply(config, zap.NewNop(), operationstore.Config{Redis: redismodule.Config{URL: server.URL()}}))
			if code, body := probe(h); code != http.StatusServiceUnavailable {
				t.Errorf("before the start: %d %s", code, body)
			}
			app.RequireStart()
			if code, body := probe(h); code != http.StatusOK {
				t.Errorf("after the start: %d %s", code, body)
			}
			var parts []string
			for _, f := range h.Check(t.Context()).Parts {
				parts = append(parts, f.Name)
			}
			if got := strings.Join(sorted(parts), " "); got != c.parts {
				t.Errorf("checked were %q, want %q", got, c.parts)
			}
			app.RequireStop()
			if code, body := probe(h); code != http.StatusServiceUnavailable {
				t.Errorf("after the stop: %d %s", code, body)
			}
		})
	}
}

func TestATestsWorldIsHealthyUntilAFaultIsInjected(t *testing.T) {
	h, world := coordfx.NewHealth(), testkit.NewWorld(nil)
	world.Health = h
	app := fxtest.New(t, fx.NopLogger, testkit.ModuleOf(world))
	want := func(when string, state health.State) {
		t.Helper()
		if r := h.Check(t.Context()); r.State != state {
			t.Errorf("%s: %+v, want %s", when, r, state)
		}
	}
	want("before the start", health.Starting)
	app.RequireStart()
	want("started", health.OK)
	heal := world.Inject(testkit.FaultDown)
	want("in an outage", health.Failing)
	heal()
	want("after it", health.OK)
	app.RequireStop()
	want("stopped", health.Stopping)
}
