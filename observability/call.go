package observability

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Operation measures the calls of one operation of a primitive: it counts them by
// outcome, times them, and makes a span of each. All that a call needs is built once. A
// nil pointer measures nothing. Safe for concurrent use.
type Operation struct {
	name     string // of the spans
	tracer   trace.Tracer
	start    []trace.SpanStartOption
	duration metric.Float64Histogram
	wait     metric.Float64Histogram // nil without waits

	keyAttribute string // of the spans; attrKey if empty
	routine      string // an outcome that is worth a count and no more
	results      []result
}

// result is one outcome, ready to be recorded.
type result struct {
	outcome   string
	erroneous bool
	calls     *atomic.Int64
	add       []metric.AddOption
	record    []metric.RecordOption
	observe   []metric.ObserveOption
	attribute attribute.KeyValue // of spans
}

// Operation makes the measures of one operation of a primitive, such as "coord.lock"
// and "acquire". Its outcomes are those of the instrument <primitive>.calls.
func (k *Kit) Operation(primitive, name string) *Operation {
	if k.meter == nil && k.tracer == nil {
		return nil
	}
	definition, _ := instrument(primitive + ".calls")
	o := &Operation{
		name: primitive + " " + name, tracer: k.tracer,
		start: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)},
	}
	o.duration = k.histogram(primitive + ".duration")
	if waits, ok := instrument(primitive + ".wait"); ok && slices.Contains(valuesOf(waits, attrOperation), name) {
		o.wait = k.histogram(primitive + ".wait")
	}
	for _, outcome := range valuesOf(definition, attrOutcome) {
		o.results = append(o.results, newResult(outcome, attribute.String(attrOperation, name), attribute.String(attrOutcome, outcome)))
	}
	k.observeCalls(primitive+".calls", o.results)
	return o
}

// observeCalls makes the counter of calls, which is read when metrics are collected:
// counting itself is one addition, where a synchronous counter would cost as much again
// as the histogram.
func (k *Kit) observeCalls(name string, results []result) {
	k.make(name, func(d Instrument) error {
		counter, err := k.meter.Int64ObservableCounter(name, metric.WithUnit(d.Unit), metric.WithDescription(d.Meaning))
		if err != nil {
			return err
		}
		_, err = k.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			for i := range results {
				if n := results[i].calls.Load(); n > 0 {
					o.ObserveInt64(counter, n, results[i].observe...)
				}
			}
			return nil
		}, counter)
		return err
	})
}

// Internal makes the measure of an operation of which there is a span but no count of
// its own, because it is made of others that have both. answers are its outcomes beside
// the failures that any call can have.
func (k *Kit) Internal(name string, answers ...string) *Operation {
	if k.tracer == nil {
		return nil
	}
	o := &Operation{name: name, tracer: k.tracer, start: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)}}
	for _, outcome := range slices.Concat(answers, failures) {
		o.results = append(o.results, newResult(outcome, attribute.String(attrOutcome, outcome)))
	}
	return o
}

// CountOnly leaves out the span and the duration of calls that end with the outcome
// routine: those that follow each call of another operation and say nothing that it has
// not said. The other outcomes' spans are made when they end, and so have no children.
// It returns o.
func (o *Operation) CountOnly(routine string) *Operation {
	if o != nil {
		o.routine = routine
	}
	return o
}

func newResult(outcome string, attributes ...attribute.KeyValue) result {
	set := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return result{
		outcome: outcome, erroneous: slices.Contains(erroneous, outcome),
		calls: new(atomic.Int64), add: []metric.AddOption{set}, record: []metric.RecordOption{set},
		observe:   []metric.ObserveOption{set},
		attribute: attribute.String(attrOutcome, outcome),
	}
}

func valuesOf(definition Instrument, key string) []string {
	for _, a := range definition.Attributes {
		if a.Key == key {
			return a.Values
		}
	}
	return nil
}

// Call is one call under way. The zero value measures nothing.
type Call struct {
	of    *Operation
	ctx   context.Context
	span  trace.Span // nil without a tracer
	key   string
	began time.Time
	// Waits says that the call is to wait for something other than its backend's reply,
	// so that its time is no measure of the backend.
	Waits bool
}

// Begin begins to measure a call on key, which only a recorded span shows. The returned
// context carries the span, for what the call does that has spans of its own. End must
// be called once.
func (o *Operation) Begin(ctx context.Context, key string) (context.Context, Call) {
	if o == nil {
		return ctx, Call{}
	}
	c := Call{of: o, key: key, began: time.Now()}
	if o.tracer != nil && o.routine == "" {
		ctx, c.span = o.tracer.Start(ctx, o.name, o.start...)
	}
	c.ctx = ctx
	return ctx, c
}

// BeginLinked is Begin of a trace of its own, whose span links to origin if that is
// valid.
func (o *Operation) BeginLinked(ctx context.Context, key string, origin Origin) (context.Context, Call) {
	if o == nil {
		return ctx, Call{}
	}
	c := Call{of: o, key: key, began: time.Now()}
	if o.tracer != nil {
		start := append(o.start[:len(o.start):len(o.start)], trace.WithNewRoot())
		if from := origin.spanContext(); from.IsValid() {
			start = append(start, trace.WithLinks(trace.Link{SpanContext: from}))
		}
		ctx, c.span = o.tracer.Start(ctx, o.name, start...)
	}
	c.ctx = ctx
	return ctx, c
}

// Carry returns ctx with the call's span, for work under another context than the one
// that Begin returned.
func (c Call) Carry(ctx context.Context) context.Context {
	if c.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, c.span)
}

// End records how the call ended, with the error that its caller gets.
func (c Call) End(outcome string, err error) {
	if c.of == nil {
		return
	}
	r := c.of.result(outcome)
	r.calls.Add(1)
	if c.of.routine != "" && outcome == c.of.routine {
		return
	}
	switch {
	case c.Waits && c.of.wait != nil:
		c.of.wait.Record(c.ctx, time.Since(c.began).Seconds(), r.record...)
	case c.of.duration != nil:
		c.of.duration.Record(c.ctx, time.Since(c.began).Seconds(), r.record...)
	}
	if c.of.routine != "" && c.of.tracer != nil {
		start := append(c.of.start[:len(c.of.start):len(c.of.start)], trace.WithTimestamp(c.began))
		_, c.span = c.of.tracer.Start(c.ctx, c.of.name, start...)
	}
	if c.span == nil {
		return
	}
	if c.span.IsRecording() {
		c.describe(r, err)
	}
	c.span.End()
}

// describe tells the recording span how its call ended.
func (c Call) describe(r *result, err error) {
	key := attribute.String(c.of.keyName(), c.key)
	if err == nil && !r.erroneous {
		c.span.SetAttributes(key, r.attribute)
		return
	}
	c.span.SetAttributes(key, r.attribute, attribute.String(attrErrorType, r.outcome))
	switch {
	case !r.erroneous:
	case err == nil:
		c.span.SetStatus(codes.Error, r.outcome)
	default:
		c.span.SetStatus(codes.Error, err.Error())
	}
}

func (o *Operation) keyName() string {
	if o.keyAttribute != "" {
		return o.keyAttribute
	}
	return attrKey
}

// other is the outcome of what no list foresaw.
var other = newResult("failed", attribute.String(attrOutcome, "failed"))

// result finds an outcome. There are a dozen at most, and the likely ones come first.
func (o *Operation) result(outcome string) *result {
	for i := range o.results {
		if o.results[i].outcome == outcome {
			return &o.results[i]
		}
	}
	return &other
}
