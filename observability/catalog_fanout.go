package observability

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of fan-outs and consumers.
const (
	CronFanoutEnqueueFailed Key = "redis.cron_fanout.enqueue_failed"
	ConsumerReceiveFailed   Key = "sqs.consumer.receive_failed"
	ConsumerHandlerFailed   Key = "sqs.consumer.handler_failed"
	ConsumerHeartbeatLost   Key = "sqs.consumer.heartbeat_lost"
	ConsumerBadMessage      Key = "sqs.consumer.bad_message"
	ConsumerDeleteFailed    Key = "sqs.consumer.delete_failed"
)

func fanoutSignals() []Signal {
	return []Signal{
		{
			Key: CronFanoutEnqueueFailed, Level: zapcore.ErrorLevel, Message: "record could not be queued",
			Fields:  []Field{{"job", Text}, {"organization_id", Text}, {"record_id", Text}, {"code", Text}, {"error", Failure}},
			Meaning: "A record of a fan-out could not be queued.",
			Action:  "Check the queue. The record is found again by the job's next scan if it is still pending.",
			Alarm:   atLeast(1),
		},
		{
			Key: ConsumerReceiveFailed, Level: zapcore.WarnLevel, Message: "receiving messages failed",
			Fields:  []Field{{"queue", Text}, {"error", Failure}},
			Meaning: "Messages could not be received; it is tried again with backoff.",
			Action:  "Check the queue and the credentials.",
			Alarm:   atLeast(5),
		},
		{
			Key: ConsumerHandlerFailed, Level: zapcore.WarnLevel, Message: "message handler failed",
			Fields:  []Field{{"consumer", Text}, {"organization_id", Text}, {"record_id", Text}, {"receives", Number}, {"error", Failure}},
			Meaning: "A handler returned an error or panicked; the message is delivered again later.",
			Action:  "See the error; after the queue's maximum of receives the message is in the dead-letter queue.",
			Waiver:  "retried by the queue; the dead-letter queue's depth is what to watch",
		},
		{
			Key: ConsumerHeartbeatLost, Level: zapcore.ErrorLevel, Message: "message visibility was lost",
			Fields:  []Field{{"consumer", Text}, {"organization_id", Text}, {"record_id", Text}, {"error", Failure}},
			Meaning: "A message's visibility could not be extended; its handler was cancelled and the message not deleted.",
			Action:  "Check the queue; another replica handles the message again.",
			Alarm:   atLeast(1),
		},
		{
			Key: ConsumerBadMessage, Level: zapcore.ErrorLevel, Message: "message could not be decoded",
			Fields:  []Field{{"consumer", Text}, {"message_id", Text}, {"error", Failure}},
			Meaning: "A message could not be decoded; it goes to the dead-letter queue by the queue's redrive policy.",
			Action:  "Look for a producer of another version, or one outside Coord, on this queue.",
			Alarm:   atLeast(1),
		},
		{
			Key: ConsumerDeleteFailed, Level: zapcore.WarnLevel, Message: "handled message could not be deleted",
			Fields:  []Field{{"consumer", Text}, {"message_id", Text}, {"error", Failure}},
			Meaning: "A handled message could not be deleted; it is delivered again and recognised as a duplicate.",
			Action:  "Nothing for a single one; with many check the queue.",
			Waiver:  "the idempotency log recognises the redelivery",
		},
	}
}

// CronFanoutEnqueueFailed emits redis.cron_fanout.enqueue_failed.
func (s *Signals) CronFanoutEnqueueFailed(job, organizationID, recordID, code string, err error) {
	s.emit(CronFanoutEnqueueFailed, zap.String("job", job), zap.String("organization_id", organizationID), zap.String("record_id", recordID), zap.String("code", code), errField(err))
}

// ConsumerReceiveFailed emits sqs.consumer.receive_failed.
func (s *Signals) ConsumerReceiveFailed(queue string, err error) {
	s.emit(ConsumerReceiveFailed, zap.String("queue", queue), errField(err))
}

// ConsumerHandlerFailed emits sqs.consumer.handler_failed.
func (s *Signals) ConsumerHandlerFailed(consumer, organizationID, recordID string, receives int, err error) {
	s.emit(ConsumerHandlerFailed, zap.String("consumer", consumer), zap.String("organization_id", organizationID), zap.String("record_id", recordID), zap.Int("receives", receives), errField(err))
}

// ConsumerHeartbeatLost emits sqs.consumer.heartbeat_lost.
func (s *Signals) ConsumerHeartbeatLost(consumer, organizationID, recordID string, err error) {
	s.emit(ConsumerHeartbeatLost, zap.String("consumer", consumer), zap.String("organization_id", organizationID), zap.String("record_id", recordID), errField(err))
}

// ConsumerBadMessage emits sqs.consumer.bad_message.
func (s *Signals) ConsumerBadMessage(consumer, messageID string, err error) {
	s.emit(ConsumerBadMessage, zap.String("consumer", consumer), zap.String("message_id", messageID), errField(err))
}

// ConsumerDeleteFailed emits sqs.consumer.delete_failed.
func (s *Signals) ConsumerDeleteFailed(consumer, messageID string, err error) {
	s.emit(ConsumerDeleteFailed, zap.String("consumer", consumer), zap.String("message_id", messageID), errField(err))
}
