package observability

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// samplerProbes is more equal lines in one instant than any sampler lets through whole.
const samplerProbes = 1000

// Sampled tells whether log drops repeated lines, as zap's production configuration
// does: counts taken from such a log are too low, and an alarm on it can only mean "at
// least one". It asks the logger's core what it would do with many equal lines and
// writes none. A nil logger is not sampled.
func Sampled(log *zap.Logger) bool {
	if log == nil {
		return false
	}
	core, now := log.Core(), time.Now()
	probe := zapcore.Entry{Level: zapcore.ErrorLevel, Time: now, Message: "coord: is this logger sampled?"}
	if !core.Enabled(probe.Level) || core.Check(probe, nil) == nil {
		return false // it writes nothing at all
	}
	for range samplerProbes {
		if core.Check(probe, nil) == nil {
			return true
		}
	}
	return false
}
