package recipes

import (
	"net/http"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/observability"
)

// Observed is Coord with metrics, traces and a readiness probe.
func Observed(config coordfx.Config, meter metric.MeterProvider, tracer trace.TracerProvider) fx.Option {
	health := coordfx.NewHealth()
	config.Telemetry = observability.Telemetry{Meter: meter, Tracer: tracer}
	config.Health = health

	mux := http.NewServeMux()
	mux.Handle("/ready", health)
	return fx.Options(coordfx.Module, fx.Supply(config, mux))
}
