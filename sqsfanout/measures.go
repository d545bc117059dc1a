package sqsfanout

import (
	"context"
	"fmt"
	"path"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
)

// producerMeasures are the metrics and spans of a producer. The zero value measures
// nothing.
type producerMeasures struct {
	enqueue  *observability.Operation
	duration *observability.Timer
	records  *observability.Counter
	carries  bool // messages carry the trace context
}

func newProducerMeasures(t observability.Telemetry) (producerMeasures, error) {
	k := observability.NewKit(t, "sqs")
	m := producerMeasures{
		enqueue:  k.Internal("coord.fanout enqueue", "enqueued"),
		duration: k.Timer("coord.fanout.duration"),
		records:  k.Counter("coord.fanout.records"),
		carries:  t.Tracer != nil,
	}
	queueMeasures(k, "") // what does not work is known before there is a queue
	return m, k.Err()
}

// report counts a fan-out's records by what became of them.
func (m producerMeasures) report(ctx context.Context, r semantic.FanoutReport) {
	m.records.Add(ctx, int(r.Enqueued), "enqueued")
	m.records.Add(ctx, int(r.Failed), "failed")
	m.records.Add(ctx, int(r.Skipped), "skipped")
}

// enqueueOutcome names how an Enqueue ended.
func enqueueOutcome(r semantic.FanoutReport, err error) (string, error) {
	switch {
	case err != nil:
		return semantic.FailureName(err), err
	case r.Failed > 0:
		return "failed", fmt.Errorf("%d of %d records were not queued", r.Failed, r.Scanned)
	default:
		return "enqueued", nil
	}
}

// measuredAPI measures the requests to one queue.
type measuredAPI struct {
	API
	queue observability.Queue
}

// measured returns api as a client of one queue that measures its requests.
func measured(api API, t observability.Telemetry, queueURL string) measuredAPI {
	return measuredAPI{api, queueMeasures(observability.NewKit(t, "sqs"), queueURL)}
}

func queueMeasures(k *observability.Kit, queueURL string) observability.Queue {
	return k.Queue(queueName(queueURL))
}

// queueName is the last part of a queue's URL: the rest has the account's number.
func queueName(queueURL string) string { return path.Base(queueURL) }

// requested ends the measure of a request.
func requested(call observability.Call, err error) {
	outcome := ""
	if err != nil {
		outcome = semantic.FailureName(outcomeError("sqs", "", err))
	}
	call.End(outcome, err)
}

func (m measuredAPI) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, o ...func(*sqs.Options)) (out *sqs.SendMessageBatchOutput, err error) {
	ctx, call := m.queue.Send.Begin(ctx, queueName(aws.ToString(in.QueueUrl)))
	defer func() { requested(call, err) }()
	m.queue.Sent.Add(ctx, len(in.Entries), "")
	return m.API.SendMessageBatch(ctx, in, o...)
}

func (m measuredAPI) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (out *sqs.ReceiveMessageOutput, err error) {
	ctx, call := m.queue.Receive.Begin(ctx, "")
	defer func() { requested(call, err) }()
	if out, err = m.API.ReceiveMessage(ctx, in, o...); err == nil {
		m.queue.Received.Add(ctx, len(out.Messages), "")
	}
	return out, err
}

func (m measuredAPI) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, o ...func(*sqs.Options)) (out *sqs.DeleteMessageOutput, err error) {
	ctx, call := m.queue.Delete.Begin(ctx, "")
	defer func() { requested(call, err) }()
	return m.API.DeleteMessage(ctx, in, o...)
}

func (m measuredAPI) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, o ...func(*sqs.Options)) (out *sqs.ChangeMessageVisibilityOutput, err error) {
	ctx, call := m.queue.ChangeVisibility.Begin(ctx, "")
	defer func() { requested(call, err) }()
	return m.API.ChangeMessageVisibility(ctx, in, o...)
}

func (m measuredAPI) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, o ...func(*sqs.Options)) (out *sqs.ChangeMessageVisibilityBatchOutput, err error) {
	ctx, call := m.queue.ChangeVisibility.Begin(ctx, "")
	defer func() { requested(call, err) }()
	return m.API.ChangeMessageVisibilityBatch(ctx, in, o...)
}

func (m measuredAPI) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, o ...func(*sqs.Options)) (out *sqs.GetQueueAttributesOutput, err error) {
	ctx, call := m.queue.GetAttributes.Begin(ctx, "")
	defer func() { requested(call, err) }()
	return m.API.GetQueueAttributes(ctx, in, o...)
}

// A message carries the trace context of its Enqueue in the W3C's own attribute names,
// so that other tools can follow it too. Consumers of earlier releases read the
// attributes that they know and leave these.

// carry adds origin to a message where it still fits: tracing must not make a record too
// large. It returns the message's size with it.
func carry(origin observability.Origin, attributes map[string]types.MessageAttributeValue, size, maxBytes int) int {
	for _, name := range observability.OriginFields() {
		value := origin[name]
		grown := size + len(name) + len(attrDataType) + len(value)
		if value == "" || grown > maxBytes || len(attributes) >= maxAttributes {
			continue
		}
		attributes[name] = types.MessageAttributeValue{DataType: aws.String(attrDataType), StringValue: &value}
		size = grown
	}
	return size
}

// maxAttributes is SQS's limit for one message.
const maxAttributes = 10

// originOf reads the trace context of a received message.
func originOf(m types.Message) observability.Origin {
	var origin observability.Origin
	for _, name := range observability.OriginFields() {
		if value := aws.ToString(m.MessageAttributes[name].StringValue); value != "" {
			if origin == nil {
				origin = observability.Origin{}
			}
			origin[name] = value
		}
	}
	return origin
}

// consumerMeasures count what became of a consumer's messages.
type consumerMeasures struct{ messages *observability.Counter }

func newConsumerMeasures(t observability.Telemetry, consumers []Consumer) (map[string]consumerMeasures, error) {
	k := observability.NewKit(t, "sqs")
	all := map[string]consumerMeasures{
		unknownConsumer: {k.Counter("coord.consumer.messages", observability.AttrConsumer, unknownConsumer)},
	}
	for _, c := range consumers {
		all[c.Name] = consumerMeasures{k.Counter("coord.consumer.messages", observability.AttrConsumer, c.Name)}
	}
	queueMeasures(k, "")
	return all, k.Err()
}

// unknownConsumer stands for the consumer of a message that does not tell.
const unknownConsumer = "unknown"

// handling is the measure of one message whose turn has come.
type handling struct {
	call     observability.Call
	consumer string
	outcome  string
	err      error
}

// end tells what became of the message.
func (h *handling) end(l *line) {
	h.call.End(h.outcome, h.err)
	l.measures[h.consumer].messages.Add(context.Background(), 1, h.outcome)
}

// becomes notes what became of the message.
func (h *handling) becomes(outcome string, err error) { h.outcome, h.err = outcome, err }
