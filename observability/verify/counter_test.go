package verify_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/render"
)

// The rules read the counter by the name that OpenTelemetry's exporter gives it.
func TestTheExporterNamesTheCounterAsTheRulesDo(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	signals := observability.New(nil, observability.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	signals.LockLost("k")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != render.Counter {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == observability.EventField {
					counts[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	for _, s := range observability.Catalog() {
		want := 0.0
		if s.Key == observability.LockLost {
			want = 1
		}
		if have, ok := counts[string(s.Key)]; !ok || have != want {
			t.Errorf("%s{event=%q} is %v (there: %v), want %v", render.Counter, s.Key, have, ok, want)
		}
	}
}
