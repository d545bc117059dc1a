package observability

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// EventField is the field of a line that carries its key.
const EventField = "event"

// SignalCounter is the counter of emitted signals: one series for each key of the
// catalog, named by the attribute [EventField], there from the start with zero.
// Prometheus calls it coord_signals_total.
const SignalCounter = "coord.signals"

// Signals emits the catalog's signals, each through a method of its own. The zero
// value and a nil pointer emit nothing. Safe for concurrent use; no method blocks
// beyond the logger's own write.
type Signals struct {
	log     *zap.Logger
	entries map[Key]entry
	counter metric.Int64Counter // nil: nothing is counted
}

// entry is what emit needs of a signal.
type entry struct {
	level   zapcore.Level
	message string
	series  metric.MeasurementOption
}

// Option is an option of [New].
type Option func(*options)

type options struct{ provider metric.MeterProvider }

// WithMeterProvider counts every signal in [SignalCounter], whatever the logger drops.
// A nil provider counts nothing.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(o *options) { o.provider = provider }
}

// New returns Signals that write to log, which may be nil. A provider that refuses the
// counter is told by the signal coord.signals.uncounted.
func New(log *zap.Logger, opts ...Option) *Signals {
	if log == nil {
		log = zap.NewNop()
	}
	var o options
	for _, apply := range opts {
		apply(&o)
	}
	s := &Signals{
		log:     log.WithOptions(zap.AddCallerSkip(2), zap.AddStacktrace(zapcore.FatalLevel)),
		entries: map[Key]entry{},
	}
	for _, signal := range Catalog() {
		s.entries[signal.Key] = entry{
			level: signal.Level, message: signal.Message,
			series: metric.WithAttributeSet(attribute.NewSet(attribute.String(EventField, string(signal.Key)))),
		}
	}
	if o.provider == nil {
		return s
	}
	counter, err := signalCounter(o.provider)
	if err != nil {
		s.SignalsUncounted(err)
		return s
	}
	s.counter = counter
	for _, e := range s.entries {
		// A series that begins at its first event has no increase for a rule to see.
		s.counter.Add(context.Background(), 0, e.series)
	}
	return s
}

// signalCounter makes the counter, or an error of whatever a broken provider does.
func signalCounter(provider metric.MeterProvider) (counter metric.Int64Counter, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the meter provider panicked: %v", p)
		}
	}()
	return provider.Meter(Scope).Int64Counter(SignalCounter,
		metric.WithUnit("{signal}"), metric.WithDescription("signals of the catalog, by event"))
}

// emit counts one signal and writes it: its fields, and last its key.
func (s *Signals) emit(key Key, fields ...zap.Field) {
	if s == nil || s.log == nil {
		return
	}
	e := s.entries[key]
	if s.counter != nil {
		s.counter.Add(context.Background(), 1, e.series)
	}
	if line := s.log.Check(e.level, e.message); line != nil {
		line.Write(append(fields, zap.String(EventField, string(key)))...)
	}
}

func errField(err error) zap.Field {
	if err == nil {
		return zap.String("error", "")
	}
	return zap.String("error", err.Error())
}

func gapField(gap time.Duration) zap.Field { return zap.Int64("gap_ms", gap.Milliseconds()) }
