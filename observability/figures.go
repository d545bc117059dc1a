package observability

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// Figure is one statistic that is read when metrics are collected.
type Figure struct {
	Name        string // for example coord.operation.gate.active
	Unit        string // in UCUM: {command}, By, s
	Description string
	Counter     bool // it only grows; otherwise it is of the moment
}

// ObserveFigures makes an asynchronous instrument of provider for each figure. read
// returns their values in the same order and must not block. stop ends the observation.
// A nil provider means no metrics. The error is the provider's: a broken one is not
// passed over in silence.
func ObserveFigures(provider metric.MeterProvider, figures []Figure, read func() []int64) (stop func() error, err error) {
	if provider == nil {
		return func() error { return nil }, nil
	}
	meter := provider.Meter(Scope)
	var instruments []metric.Int64Observable
	var all []metric.Observable
	for _, f := range figures {
		if listed, ok := instrument(f.Name); !ok || listed.Unit != f.Unit || listed.Meaning != f.Description || (listed.Kind == KindObserved) != f.Counter {
			return nil, fmt.Errorf("metric %s is not among the instruments, or is another there", f.Name)
		}
		var instrument metric.Int64Observable
		if f.Counter {
			instrument, err = meter.Int64ObservableCounter(f.Name, metric.WithUnit(f.Unit), metric.WithDescription(f.Description))
		} else {
			instrument, err = meter.Int64ObservableGauge(f.Name, metric.WithUnit(f.Unit), metric.WithDescription(f.Description))
		}
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", f.Name, err)
		}
		instruments, all = append(instruments, instrument), append(all, instrument)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i, value := range read() {
			o.ObserveInt64(instruments[i], value)
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", figures[0].Name, err)
	}
	return registration.Unregister, nil
}
