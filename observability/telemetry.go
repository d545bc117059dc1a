package observability

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the instrumentation scope of Coord's metrics and spans.
const Scope = "github.com/wrkbelt/coord"

// Telemetry has the OpenTelemetry providers that metrics and spans go to. The zero
// value means none: nothing is measured, and that costs a comparison with nil. A global
// provider is never used. The providers stay the caller's, who shuts them down after
// the services have been closed.
type Telemetry struct {
	// Meter receives the metrics of [Instruments]; nil for none.
	Meter metric.MeterProvider
	// Tracer receives a span for every public call that does I/O; nil for none.
	Tracer trace.TracerProvider
}

// Or returns t with what it lacks taken from other.
func (t Telemetry) Or(other Telemetry) Telemetry {
	if t.Meter == nil {
		t.Meter = other.Meter
	}
	if t.Tracer == nil {
		t.Tracer = other.Tracer
	}
	return t
}

// Kit makes the instruments of one component from the list that [Instruments] returns.
// What goes wrong is kept until Err, so that a component makes all of them and asks
// once. Its products are nil where there is no provider for them, and a nil instrument
// does nothing.
type Kit struct {
	setting string
	meter   metric.Meter
	tracer  trace.Tracer
	bad     []error
}

// NewKit opens t's providers. setting begins the errors, as in "redis".
func NewKit(t Telemetry, setting string) *Kit {
	k := &Kit{setting: setting}
	if t.Meter != nil {
		k.guard("Meter", func() error {
			if k.meter = t.Meter.Meter(Scope); k.meter == nil {
				return errors.New("it gave no meter")
			}
			return nil
		})
	}
	if t.Tracer != nil {
		k.guard("Tracer", func() error {
			if k.tracer = t.Tracer.Tracer(Scope); k.tracer == nil {
				return errors.New("it gave no tracer")
			}
			return nil
		})
	}
	return k
}

// Err returns all that went wrong: each error names the setting of the provider and the
// instrument. Metrics that could not be made are not passed over in silence.
func (k *Kit) Err() error { return errors.Join(k.bad...) }

// guard notes the error or the panic of a provider that was not made to be used: a nil
// pointer in an interface, above all.
func (k *Kit) guard(provider string, ask func() error) {
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("it panicked: %v", p)
			}
		}()
		return ask()
	}()
	if err != nil {
		k.bad = append(k.bad, fmt.Errorf("%s Telemetry.%s: not usable: %w: want a working provider, or nil for none", k.setting, provider, err))
	}
}

// make calls build with the definition of name, if there is a meter for it.
func (k *Kit) make(name string, build func(Instrument) error) {
	if k.meter == nil {
		return
	}
	k.guard("Meter", func() error {
		definition, ok := instrument(name)
		if !ok {
			return fmt.Errorf("metric %s is not among the instruments", name)
		}
		if err := build(definition); err != nil {
			return fmt.Errorf("metric %s: %w", name, err)
		}
		return nil
	})
}
