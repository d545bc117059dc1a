package observability

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of the operation coordinator.
const (
	OperationUnavailable Key = "redis.operation.unavailable"
	OperationUnknown     Key = "redis.operation.unknown"
	OperationRejected    Key = "redis.operation.rejected"
	OperationEvictable   Key = "redis.operation.evictable"
)

func operationSignals() []Signal {
	return []Signal{
		{
			Key: OperationUnavailable, Level: zapcore.ErrorLevel, Message: "operation command not dispatched",
			Fields:  []Field{{"command", Text}, {"error", Failure}},
			Meaning: "A command of the operation coordinator was not dispatched; nothing was applied.",
			Action:  "Check the Redis server. With a full queue or a queue deadline as the cause, raise MaxActive or add replicas.",
			Alarm:   atLeast(5),
		},
		{
			Key: OperationUnknown, Level: zapcore.ErrorLevel, Message: "operation command outcome unknown",
			Fields:  []Field{{"command", Text}, {"error", Failure}},
			Meaning: "A command of the operation coordinator was sent and its reply was lost, twice where there was time.",
			Action:  "The caller reconciles its durable record and the provider; check the Redis server and the network.",
			Alarm:   atLeast(5),
		},
		{
			Key: OperationRejected, Level: zapcore.ErrorLevel, Message: "operation command refused",
			Fields:  []Field{{"command", Text}, {"code", Text}, {"error", Failure}},
			Meaning: "The Redis server refused a command of the operation coordinator and wrote nothing.",
			Action:  "READONLY: the server is no primary any more. OOM: raise maxmemory. INVALID_RECORD: something else wrote the key.",
			Alarm:   atLeast(1),
		},
		{
			Key: OperationEvictable, Level: zapcore.WarnLevel, Message: "operation records may be evicted",
			Fields:  []Field{{"authority", Text}, {"policy", Text}, {"error", Failure}},
			Meaning: "The coordinator's Redis may evict records under memory pressure, or does not tell whether it may.",
			Action:  "Set maxmemory-policy to noeviction: an evicted record lets a completed operation be begun again.",
			Alarm:   atLeast(1),
		},
	}
}

// OperationUnavailable emits redis.operation.unavailable.
func (s *Signals) OperationUnavailable(command string, err error) {
	s.emit(OperationUnavailable, zap.String("command", command), errField(err))
}

// OperationUnknown emits redis.operation.unknown.
func (s *Signals) OperationUnknown(command string, err error) {
	s.emit(OperationUnknown, zap.String("command", command), errField(err))
}

// OperationRejected emits redis.operation.rejected.
func (s *Signals) OperationRejected(command, code string, err error) {
	s.emit(OperationRejected, zap.String("command", command), zap.String("code", code), errField(err))
}

// OperationEvictable emits redis.operation.evictable.
func (s *Signals) OperationEvictable(authority, policy string, err error) {
	s.emit(OperationEvictable, zap.String("authority", authority), zap.String("policy", policy), errField(err))
}
