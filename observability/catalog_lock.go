package observability

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of locks.
const (
	LockUnavailable   Key = "redis.lock.unavailable"
	LockLost          Key = "redis.lock.lost"
	LockReleaseFailed Key = "redis.lock.release_failed"
)

func lockSignals() []Signal {
	return []Signal{
		{
			Key: LockUnavailable, Level: zapcore.ErrorLevel, Message: "lock unavailable",
			Fields:  []Field{{"key", Text}, {"outcome", Text}, {"error", Failure}},
			Meaning: "A lock could not be acquired because Redis could not say; gated work was skipped.",
			Action:  "Check the Redis server. Ticks are skipped, never run ungated, while it lasts.",
			Alarm:   atLeast(5),
		},
		{
			Key: LockLost, Level: zapcore.WarnLevel, Message: "lock validity ended before its work",
			Fields:  []Field{{"key", Text}},
			Meaning: "A lock's validity ended before the work under it did; its context was cancelled.",
			Action:  "Raise the ttl, shorten the work or move it to a lease. Check that the resource is fenced.",
			Alarm:   atLeast(1),
		},
		{
			Key: LockReleaseFailed, Level: zapcore.WarnLevel, Message: "lock release failed",
			Fields:  []Field{{"key", Text}, {"outcome", Text}, {"error", Failure}},
			Meaning: "A lock could not be released; its TTL frees it.",
			Action:  "Nothing for a single one; with many check the Redis server.",
			Waiver:  "the TTL is the safety net, and an outage raises redis.lock.unavailable",
		},
	}
}

// LockUnavailable emits redis.lock.unavailable.
func (s *Signals) LockUnavailable(key, outcome string, err error) {
	s.emit(LockUnavailable, zap.String("key", key), zap.String("outcome", outcome), errField(err))
}

// LockLost emits redis.lock.lost.
func (s *Signals) LockLost(key string) {
	s.emit(LockLost, zap.String("key", key))
}

// LockReleaseFailed emits redis.lock.release_failed.
func (s *Signals) LockReleaseFailed(key, outcome string, err error) {
	s.emit(LockReleaseFailed, zap.String("key", key), zap.String("outcome", outcome), errField(err))
}
