package observability_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/wrkbelt/coord/observability"
)

// BenchmarkCall is one measured call: a count, a time and a span.
func BenchmarkCall(b *testing.B) {
	meter := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	tracer := trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()))
	ctx, span := tracer.Tracer("bench").Start(context.Background(), "request")
	defer span.End()
	for name, t := range map[string]observability.Telemetry{
		"off": {}, "metrics": {Meter: meter}, "spans": {Tracer: tracer}, "both": {Meter: meter, Tracer: tracer},
	} {
		k := observability.NewKit(t, "bench")
		acquire := k.Operation("coord.lock", "acquire")
		if err := k.Err(); err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, call := acquire.Begin(ctx, "key")
				call.End("acquired", nil)
			}
		})
	}
}
