// Package telemetry records the metrics and spans of Coord in memory, for tests.
//
//	recorder := telemetry.New()
//	config.Telemetry = recorder.Telemetry()
//	… what the test does …
//	recorder.Expect(t, "coord.lock.calls acquire acquired 1")
package telemetry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wrkbelt/coord/observability"
)

// T is what a [Recorder] needs of a test.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Recorder keeps every metric and every span. Safe for concurrent use.
type Recorder struct {
	reader *sdkmetric.ManualReader
	meter  *sdkmetric.MeterProvider
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
	before map[string]float64 // the points at the last Reset
}

// New returns an empty recorder, whose tracer samples everything.
func New() *Recorder {
	r := &Recorder{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	r.meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	r.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	return r
}

// Telemetry are the recorder's providers.
func (r *Recorder) Telemetry() observability.Telemetry {
	return observability.Telemetry{Meter: r.meter, Tracer: r.tracer}
}

// Start begins a span of the test's own, and returns a context that carries it.
func (r *Recorder) Start(ctx context.Context, name string) (child context.Context, end func()) {
	ctx, span := r.tracer.Tracer("test").Start(ctx, name)
	return ctx, func() { span.End() }
}

// Point is one data point: the instrument, its attributes as key=value in the order of
// their keys, and its value: of a histogram how many values it has.
type Point struct {
	Name       string
	Unit       string
	Kind       observability.InstrumentKind
	Attributes []attribute.KeyValue
	Value      float64
	Sum        float64 // of a histogram
	Bounds     []float64
}

// String is the point as Expect takes it, without its value.
func (p Point) String() string {
	var pairs []string
	for _, a := range p.Attributes {
		pairs = append(pairs, string(a.Key)+"="+a.Value.String())
	}
	return p.Name + "{" + strings.Join(pairs, ",") + "}"
}

// Points collects every data point.
func (r *Recorder) Points(ctx context.Context) ([]Point, error) {
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(ctx, &all); err != nil {
		return nil, err
	}
	var points []Point
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			for _, p := range pointsOf(m.Data) {
				p.Name, p.Unit = m.Name, m.Unit
				points = append(points, p)
			}
		}
	}
	return points, nil
}

func pointsOf(data metricdata.Aggregation) (points []Point) {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		kind := observability.KindUpDown
		if d.IsMonotonic {
			kind = observability.KindCounter
		}
		for _, p := range d.DataPoints {
			points = append(points, Point{Kind: kind, Attributes: p.Attributes.ToSlice(), Value: float64(p.Value)})
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			points = append(points, Point{Kind: observability.KindGauge, Attributes: p.Attributes.ToSlice(), Value: float64(p.Value)})
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			points = append(points, Point{
				Kind: observability.KindHistogram, Attributes: p.Attributes.ToSlice(),
				Value: float64(p.Count), Sum: p.Sum, Bounds: p.Bounds, //nolint:gosec // a count
			})
		}
	}
	return points
}

// Changes returns the points whose value has changed since the last Reset, in their
// order as text.
func (r *Recorder) Changes(ctx context.Context) ([]string, error) {
	points, err := r.Points(ctx)
	if err != nil {
		return nil, err
	}
	var changes []string
	for _, p := range points {
		if now, was := p.Value, r.before[p.String()]; now != was {
			changes = append(changes, fmt.Sprintf("%v %v", p, now-was))
		}
	}
	slices.Sort(changes)
	return changes, nil
}

// Reset forgets what was recorded until now.
func (r *Recorder) Reset(ctx context.Context) error {
	points, err := r.Points(ctx)
	if err != nil {
		return err
	}
	r.before = map[string]float64{}
	for _, p := range points {
		r.before[p.String()] = p.Value
	}
	r.spans.Reset()
	return nil
}

// Expect fails the test unless exactly want has changed since the last Reset, and
// nothing else. Each is an instrument's name, the values of its attributes in the order
// of [observability.Instruments], and the change, as in
//
//	coord.lock.calls acquire acquired 1
//
// Of a histogram the change is in how many values it has. It also fails for a point that
// is not as the instruments' list says.
func (r *Recorder) Expect(t T, want ...string) {
	t.Helper()
	got, err := r.Changes(context.Background())
	if err != nil {
		t.Errorf("collecting metrics: %v", err)
		return
	}
	var full []string
	for _, short := range want {
		full = append(full, written(short))
	}
	slices.Sort(full)
	if !slices.Equal(got, full) {
		t.Errorf("the metrics changed by\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(full, "\n  "))
	}
	r.expectDeclared(t)
}

// written writes a point out in full, as [Recorder.Changes] does.
func written(short string) string {
	words := strings.Fields(short)
	if len(words) < 2 {
		return short
	}
	name, values, change := words[0], words[1:len(words)-1], words[len(words)-1]
	i := slices.IndexFunc(observability.Instruments(), func(d observability.Instrument) bool { return d.Name == name })
	if i < 0 {
		return short
	}
	var pairs []string
	for n, a := range observability.Instruments()[i].Attributes {
		if n < len(values) {
			pairs = append(pairs, a.Key+"="+values[n])
		}
	}
	slices.Sort(pairs)
	return name + "{" + strings.Join(pairs, ",") + "} " + change
}

// expectDeclared fails for a point that is of no instrument of the list, or not as the
// list says.
func (r *Recorder) expectDeclared(t T) {
	t.Helper()
	points, err := r.Points(context.Background())
	if err != nil {
		t.Errorf("collecting metrics: %v", err)
		return
	}
	all := observability.Instruments()
	for _, p := range points {
		i := slices.IndexFunc(all, func(d observability.Instrument) bool { return d.Name == p.Name })
		if i < 0 {
			t.Errorf("%v is not among the instruments", p)
			continue
		}
		d := all[i]
		kind := d.Kind
		if kind == observability.KindObserved { // as data they are alike
			kind = observability.KindCounter
		}
		if p.Kind != kind || p.Unit != d.Unit || (p.Kind == observability.KindHistogram && !slices.Equal(p.Bounds, d.Buckets)) {
			t.Errorf("%v is a %s in %s with the buckets %v, declared is %+v", p, p.Kind, p.Unit, p.Bounds, d)
		}
		for _, a := range p.Attributes {
			if !slices.ContainsFunc(d.Attributes, func(declared observability.Attribute) bool {
				return declared.Key == string(a.Key) && (declared.Values == nil || slices.Contains(declared.Values, a.Value.String()))
			}) {
				t.Errorf("%v: %s=%s is not declared", p, a.Key, a.Value.String())
			}
		}
	}
}

// Spans returns the spans that have ended since the last Reset, in that order, Coord's
// own only.
func (r *Recorder) Spans() []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(r.spans.Ended(), func(s sdktrace.ReadOnlySpan) bool {
		return s.InstrumentationScope().Name != observability.Scope
	})
}

// All returns every span that has ended since the last Reset, also the test's own.
func (r *Recorder) All() []sdktrace.ReadOnlySpan { return r.spans.Ended() }

// SpanAttribute is the value of a span's attribute as text, "" without it.
func SpanAttribute(s sdktrace.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// ExpectSpans fails the test unless the spans that ended since the last Reset are
// exactly want, in any order: each its name, outcome and status, as in
//
//	coord.lock acquire: contended Unset
func (r *Recorder) ExpectSpans(t T, want ...string) {
	t.Helper()
	var got []string
	for _, s := range r.Spans() {
		got = append(got, fmt.Sprintf("%s: %s %s", s.Name(), SpanAttribute(s, "coord.outcome"), s.Status().Code))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the spans are\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
