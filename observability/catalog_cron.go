package observability

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of jobs.
const (
	CronTickSkipped Key = "cron.tick.skipped"
	CronJobFailed   Key = "cron.job.failed"
)

func cronSignals() []Signal {
	return []Signal{
		{
			Key: CronTickSkipped, Level: zapcore.WarnLevel, Message: "tick skipped",
			Fields:  []Field{{"job", Text}, {"instant", Instant}, {"reason", Text}, {"error", Failure}},
			Meaning: "A tick ran on no replica of which this one knows, for a reason other than losing the gate.",
			Action:  "UNAVAILABLE: check the Redis server. OVERLAP: the job is slower than its interval. MISFIRE: the process was paused or its clock set forward. INTERRUPTED: a stop cut the run short.",
			Alarm:   atLeast(5),
		},
		{
			Key: CronJobFailed, Level: zapcore.ErrorLevel, Message: "job run failed",
			Fields:  []Field{{"job", Text}, {"instant", Instant}, {"error", Failure}},
			Meaning: "A job's run returned an error or panicked.",
			Action:  "See the error; the next tick runs as scheduled.",
			Alarm:   atLeast(1),
		},
	}
}

// CronTickSkipped emits cron.tick.skipped.
func (s *Signals) CronTickSkipped(job string, instant time.Time, reason string, err error) {
	s.emit(CronTickSkipped, zap.String("job", job), zap.Time("instant", instant.UTC()), zap.String("reason", reason), errField(err))
}

// CronJobFailed emits cron.job.failed.
func (s *Signals) CronJobFailed(job string, instant time.Time, err error) {
	s.emit(CronJobFailed, zap.String("job", job), zap.Time("instant", instant.UTC()), errField(err))
}
