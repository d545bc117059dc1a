package observability

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of leases.
const (
	LeaseRemoveFailed    Key = "redis.resource_lease.remove_failed"
	LeaseReclaimDetected Key = "redis.resource_lease.reclaim_detected"
	LeaseLost            Key = "redis.resource_lease.lost"
	LeaseRenewFailed     Key = "redis.resource_lease.renew_failed"
)

func leaseSignals() []Signal {
	return []Signal{
		{
			Key: LeaseRemoveFailed, Level: zapcore.ErrorLevel, Message: "lease release failed",
			Fields:  []Field{{"key", Text}, {"holder", Text}, {"outcome", Text}, {"error", Failure}},
			Meaning: "A lease could not be released, so its holder does not know whether it still owned the resource.",
			Action:  "Look for the side effect that was suppressed for this key and repair it by hand.",
			Alarm:   atLeast(1),
		},
		{
			Key: LeaseReclaimDetected, Level: zapcore.InfoLevel, Message: "lease was reclaimed by another holder",
			Fields:  []Field{{"key", Text}, {"holder", Text}, {"reclaimed_by", Text}},
			Meaning: "A release found that another holder owns the lease: a handoff between replicas.",
			Action:  "Nothing; the former holder skipped its side effect as it should.",
			Waiver:  "informational: handoff is the lease's purpose",
		},
		{
			Key: LeaseLost, Level: zapcore.WarnLevel, Message: "held lease was lost",
			Fields:  []Field{{"key", Text}, {"holder", Text}, {"error", Failure}},
			Meaning: "A held lease was lost before its work ended; the work's context was cancelled.",
			Action:  "Check the Redis server; error is empty when another holder took over.",
			Alarm:   atLeast(1),
		},
		{
			Key: LeaseRenewFailed, Level: zapcore.WarnLevel, Message: "lease renewal failed",
			Fields:  []Field{{"key", Text}, {"holder", Text}, {"error", Failure}},
			Meaning: "One renewal of a held lease failed; it is tried again until the local deadline.",
			Action:  "Nothing for a single one; with many check the Redis server.",
			Waiver:  "tolerated until the deadline, which raises redis.resource_lease.lost",
		},
	}
}

// LeaseRemoveFailed emits redis.resource_lease.remove_failed.
func (s *Signals) LeaseRemoveFailed(key, holder, outcome string, err error) {
	s.emit(LeaseRemoveFailed, zap.String("key", key), zap.String("holder", holder), zap.String("outcome", outcome), errField(err))
}

// LeaseReclaimDetected emits redis.resource_lease.reclaim_detected.
func (s *Signals) LeaseReclaimDetected(key, holder, reclaimedBy string) {
	s.emit(LeaseReclaimDetected, zap.String("key", key), zap.String("holder", holder), zap.String("reclaimed_by", reclaimedBy))
}

// LeaseLost emits redis.resource_lease.lost; err is nil when another holder took over.
func (s *Signals) LeaseLost(key, holder string, err error) {
	s.emit(LeaseLost, zap.String("key", key), zap.String("holder", holder), errField(err))
}

// LeaseRenewFailed emits redis.resource_lease.renew_failed.
func (s *Signals) LeaseRenewFailed(key, holder string, err error) {
	s.emit(LeaseRenewFailed, zap.String("key", key), zap.String("holder", holder), errField(err))
}
