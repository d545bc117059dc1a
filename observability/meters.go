package observability

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Counter counts things by the value of one attribute, or by none. A nil pointer
// counts nothing. Safe for concurrent use.
type Counter struct {
	counter metric.Int64Counter
	plain   []metric.AddOption
	results []result
}

// Counter makes the counter called name. fixed attributes, as key and value in turn,
// are those of every count.
func (k *Kit) Counter(name string, fixed ...string) *Counter {
	counter := k.counter(name)
	if counter == nil {
		return nil
	}
	c := &Counter{counter: counter}
	c.plain, _, c.results = prepared(name, fixed)
	return c
}

// Add counts n things of an outcome, which is the value of the instrument's last
// attribute; "" where all of its attributes are fixed.
func (c *Counter) Add(ctx context.Context, n int, outcome string) {
	if c == nil || n == 0 {
		return
	}
	c.counter.Add(ctx, int64(n), addOption(c.results, c.plain, outcome)...)
}

// Level is a number of the moment. A nil pointer keeps none. Safe for concurrent use.
type Level struct {
	counter metric.Int64UpDownCounter
	plain   []metric.AddOption
}

// Level makes the up-down counter called name.
func (k *Kit) Level(name string, fixed ...string) *Level {
	l := &Level{}
	k.make(name, func(d Instrument) (err error) {
		l.counter, err = k.meter.Int64UpDownCounter(name, metric.WithUnit(d.Unit), metric.WithDescription(d.Meaning))
		return err
	})
	if l.counter == nil {
		return nil
	}
	l.plain, _, _ = prepared(name, fixed)
	return l
}

// Add changes the level by delta.
func (l *Level) Add(ctx context.Context, delta int) {
	if l != nil {
		l.counter.Add(ctx, int64(delta), l.plain...)
	}
}

// Timer records times in a histogram of seconds. A nil pointer records nothing. Safe
// for concurrent use.
type Timer struct {
	histogram metric.Float64Histogram
	plain     []metric.RecordOption
	results   []result
}

// Timer makes the histogram called name.
func (k *Kit) Timer(name string, fixed ...string) *Timer {
	histogram := k.histogram(name)
	if histogram == nil {
		return nil
	}
	t := &Timer{histogram: histogram}
	_, t.plain, t.results = prepared(name, fixed)
	return t
}

// Record records that something took d, with an outcome as for [Counter.Add].
func (t *Timer) Record(ctx context.Context, d time.Duration, outcome string) {
	if t == nil {
		return
	}
	record := t.plain
	for i := range t.results {
		if t.results[i].outcome == outcome {
			record = t.results[i].record
		}
	}
	t.histogram.Record(ctx, max(d, 0).Seconds(), record...)
}

// prepared are the options of an instrument: those of its fixed attributes, and, if it
// has one more attribute, the options for each value of that.
func prepared(name string, fixed []string) (add []metric.AddOption, record []metric.RecordOption, results []result) {
	var attributes []attribute.KeyValue
	for i := 0; i+1 < len(fixed); i += 2 {
		attributes = append(attributes, attribute.String(fixed[i], fixed[i+1]))
	}
	definition, _ := instrument(name)
	if n := len(definition.Attributes); n > len(attributes) {
		last := definition.Attributes[n-1]
		for _, value := range last.Values {
			results = append(results, newResult(value, append(attributes[:len(attributes):len(attributes)], attribute.String(last.Key, value))...))
		}
	}
	plain := newResult("", attributes...)
	return plain.add, plain.record, results
}

func addOption(results []result, plain []metric.AddOption, outcome string) []metric.AddOption {
	for i := range results {
		if results[i].outcome == outcome {
			return results[i].add
		}
	}
	return plain
}

func (k *Kit) counter(name string) (c metric.Int64Counter) {
	k.make(name, func(d Instrument) (err error) {
		c, err = k.meter.Int64Counter(name, metric.WithUnit(d.Unit), metric.WithDescription(d.Meaning))
		return err
	})
	return c
}

func (k *Kit) histogram(name string) (h metric.Float64Histogram) {
	k.make(name, func(d Instrument) (err error) {
		h, err = k.meter.Float64Histogram(name, metric.WithUnit(d.Unit), metric.WithDescription(d.Meaning),
			metric.WithExplicitBucketBoundaries(d.Buckets...))
		return err
	})
	return h
}
