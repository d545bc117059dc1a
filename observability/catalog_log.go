package observability

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of the idempotency log.
const (
	LogUnavailable    Key = "mongo.idempotency_log.unavailable"
	LogSuperseded     Key = "mongo.idempotency_log.superseded"
	LogTTLUnsupported Key = "mongo.idempotency_log.ttl_unsupported"
)

func logSignals() []Signal {
	return []Signal{
		{
			Key: LogUnavailable, Level: zapcore.ErrorLevel, Message: "idempotency log unavailable",
			Fields:  []Field{{"operation", Text}, {"domain", Text}, {"outcome", Text}, {"error", Failure}},
			Meaning: "The idempotency log could not answer.",
			Action:  "Check MongoDB. Callers that fail closed skip their side effect while it lasts.",
			Alarm:   atLeast(5),
		},
		{
			Key: LogSuperseded, Level: zapcore.WarnLevel, Message: "finalize of a superseded attempt refused",
			Fields:  []Field{{"record_id", Text}},
			Meaning: "An attempt was finalized after another had taken its place; nothing was written.",
			Action:  "The side effect may have run twice: reconcile it, and lengthen the takeover age.",
			Alarm:   atLeast(1),
		},
		{
			Key: LogTTLUnsupported, Level: zapcore.WarnLevel, Message: "server has no TTL indexes",
			Fields:  []Field{{"collection", Text}, {"error", Failure}},
			Meaning: "The server has no TTL indexes: expired records are not collected.",
			Action:  "Delete records whose expires_at has passed with a job of your own.",
			Waiver:  "expiry is judged in every query; only disk space is at stake",
		},
	}
}

// LogUnavailable emits mongo.idempotency_log.unavailable.
func (s *Signals) LogUnavailable(operation, domain, outcome string, err error) {
	s.emit(LogUnavailable, zap.String("operation", operation), zap.String("domain", domain), zap.String("outcome", outcome), errField(err))
}

// LogSuperseded emits mongo.idempotency_log.superseded.
func (s *Signals) LogSuperseded(recordID string) {
	s.emit(LogSuperseded, zap.String("record_id", recordID))
}

// LogTTLUnsupported emits mongo.idempotency_log.ttl_unsupported.
func (s *Signals) LogTTLUnsupported(collection string, err error) {
	s.emit(LogTTLUnsupported, zap.String("collection", collection), errField(err))
}
