package observability

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The attributes of the semantic conventions for messaging.
const (
	attrSystem        = "messaging.system"
	attrDestination   = "messaging.destination.name"
	attrOperationName = "messaging.operation.name"
	attrOperationType = "messaging.operation.type"
	attrMessageID     = "messaging.message.id"

	systemSQS = "aws_sqs"
)

// Queue measures what is done with one SQS queue, by the names of OpenTelemetry's
// semantic conventions. Its fields are nil without providers.
type Queue struct {
	// The requests of a client.
	Send, Receive, Delete, ChangeVisibility, GetAttributes *Operation
	// Process is the handling of one message. Its span is of kind consumer.
	Process *Operation

	Sent, Received *Counter // messages
	InFlight       *Level   // messages in hand
}

// Queue makes the measures of the queue called name, which is not its URL: that has the
// account's number.
func (k *Kit) Queue(name string) Queue {
	request := func(operation, kind string, span bool) *Operation {
		o := k.messaging("messaging.client.operation.duration", operation, kind, name, nil)
		if o != nil && !span {
			o.tracer = nil // asked in the background, or for a call that has a span
		}
		return o
	}
	process := k.messaging("messaging.process.duration", "process", "process", name, consumed)
	if process != nil {
		process.start = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
		process.keyAttribute = attrMessageID
	}
	fixed := func(operation string) []string {
		return []string{attrSystem, systemSQS, attrDestination, name, attrOperationName, operation}
	}
	return Queue{
		Send: request("send", "send", true), Receive: request("receive", "receive", false),
		Delete: request("delete", "settle", false), ChangeVisibility: request("change_visibility", "settle", false),
		GetAttributes: request("get_attributes", "", false),
		Process:       process,
		Sent:          k.Counter("messaging.client.sent.messages", fixed("send")...),
		Received:      k.Counter("messaging.client.consumed.messages", fixed("receive")...),
		InFlight:      k.Level("coord.consumer.in_flight", attrDestination, name),
	}
}

// messaging makes one operation on a queue, whose outcomes are "" for success, answers,
// which are successes too, and the failures.
func (k *Kit) messaging(histogram, operation, kind, queue string, answers []string) *Operation {
	if k.meter == nil && k.tracer == nil {
		return nil
	}
	o := &Operation{
		name: operation + " " + queue, tracer: k.tracer, keyAttribute: attrDestination,
		start: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer)},
	}
	o.duration = k.histogram(histogram)
	fixed := []attribute.KeyValue{
		attribute.String(attrSystem, systemSQS), attribute.String(attrDestination, queue),
		attribute.String(attrOperationName, operation),
	}
	if kind != "" {
		fixed = append(fixed, attribute.String(attrOperationType, kind))
	}
	for _, outcome := range slices.Concat([]string{""}, answers, failures) {
		set := fixed[:len(fixed):len(fixed)]
		if slices.Contains(failures, outcome) || slices.Contains(erroneous, outcome) {
			set = append(set, attribute.String(attrErrorType, outcome))
		}
		o.results = append(o.results, newResult(outcome, set...))
	}
	return o
}

// Origin is the trace context that a message carries: where it was sent from.
type Origin map[string]string

// traceContext writes and reads the W3C headers traceparent and tracestate. Baggage
// stays where it is: it may hold what is not the queue's business.
var traceContext propagation.TraceContext

// OriginOf is the trace context of ctx, nil without one.
func OriginOf(ctx context.Context) Origin {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	return Origin(carrier)
}

// OriginFields are the names that an [Origin] may have.
func OriginFields() []string { return traceContext.Fields() }

func (o Origin) spanContext() trace.SpanContext {
	if len(o) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(traceContext.Extract(context.Background(), propagation.MapCarrier(o)))
}
