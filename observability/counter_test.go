package observability_test

import (
	"errors"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/testkit"
)

// counted reads coord.signals by event.
func counted(t *testing.T, reader sdk.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != "coord.signals" || !ok || !sum.IsMonotonic {
				t.Fatalf("metric %s %T, want the counter coord.signals alone", m.Name, m.Data)
			}
			for _, p := range sum.DataPoints {
				event, _ := p.Attributes.Value("event")
				if p.Attributes.Len() != 1 {
					t.Errorf("attributes %v, want event alone", p.Attributes)
				}
				counts[event.AsString()] = p.Value
			}
		}
	}
	return counts
}

func TestEverySignalIsCountedFromZeroWhateverTheLoggerDrops(t *testing.T) {
	reader := sdk.NewManualReader()
	signals := observability.New(nil, observability.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader))))
	want := map[string]int64{}
	for _, s := range observability.Catalog() {
		want[string(s.Key)] = 0
	}
	if got := counted(t, reader); !maps.Equal(got, want) {
		t.Errorf("at the start: %v, want every key of the catalog with 0", got)
	}
	for range 3 {
		signals.LockUnavailable("k", "UNKNOWN", nil)
	}
	signals.AdapterReconnected("publisher", 0)
	want["redis.lock.unavailable"], want["redis.adapter.reconnected"] = 3, 1
	if got := counted(t, reader); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// refusing is a provider whose meters make no counter.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errors.New("no counters here")
}

func TestAProviderThatRefusesTheCounterIsTold(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	signals := observability.New(zap.New(testkit.RecordSignals(core)), observability.WithMeterProvider(refusing{}))
	told := logs.TakeAll()
	if len(told) != 1 || told[0].ContextMap()["event"] != "coord.signals.uncounted" || told[0].ContextMap()["error"] != "no counters here" {
		t.Fatalf("told %v, want coord.signals.uncounted with the provider's error", told)
	}
	signals.LockLost("k")
	if logs.Len() != 1 {
		t.Error("the line is not written any more")
	}
}

// panicking is a provider that was not made to be used.
type panicking struct{ metric.MeterProvider }

func (panicking) Meter(string, ...metric.MeterOption) metric.Meter { panic("not made to be used") }

// TestABrokenProviderIsToldAndHarmsNobody: whatever it does, signals are still written.
func TestABrokenProviderIsToldAndHarmsNobody(t *testing.T) {
	for name, provider := range map[string]metric.MeterProvider{"panics": panicking{}, "is a nil pointer": (*sdk.MeterProvider)(nil)} {
		core, logs := observer.New(zapcore.DebugLevel)
		observability.New(zap.New(core), observability.WithMeterProvider(provider)).LockLost("k")
		var events []any
		for _, line := range logs.All() {
			events = append(events, line.ContextMap()["event"])
		}
		if len(events) != 2 || events[0] != string(observability.SignalsUncounted) || events[1] != string(observability.LockLost) {
			t.Errorf("a provider that %s: %v, want it told and the signal written", name, events)
		}
	}
}
