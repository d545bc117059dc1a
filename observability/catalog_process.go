package observability

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of the process itself.
const (
	ConnectionUnready Key = "redis.connection.unready"
	LoggerSampled     Key = "coord.logger.sampled"
	LoggerHidesEvent  Key = "coord.logger.hides_event"
	SignalsUncounted  Key = "coord.signals.uncounted"
)

func processSignals() []Signal {
	return []Signal{
		{
			Key: ConnectionUnready, Level: zapcore.ErrorLevel, Message: "redis is not ready",
			Fields:  []Field{{"role", Text}, {"error", Failure}},
			Meaning: "Redis did not answer as needed when the service started, and the start failed.",
			Action:  "Check address, credentials and server; the error names the setting where there is one.",
			Waiver:  "the service does not start, which its orchestrator reports",
		},
		{
			Key: LoggerSampled, Level: zapcore.WarnLevel, Message: "logger drops repeated lines",
			Meaning: "The logger drops repeated lines, so counts taken from the log are too low.",
			Action:  "Give Coord an unsampled logger, or read alarms as \"at least one\".",
			Waiver:  "said once at start",
		},
		{
			Key: LoggerHidesEvent, Level: zapcore.ErrorLevel, Message: "logger hides the field event: no alarm on the log can fire",
			Meaning: "The logger has an open zap.Namespace, or a field or key of its own named event, so event does not stand alone at the top level of a line.",
			Action:  "Give Coord a logger without them, or build it with observability.KeepEventFlat().",
			Waiver:  "said once at start; an alarm could not see it, for the same reason",
		},
		{
			Key: SignalsUncounted, Level: zapcore.WarnLevel, Message: "signals are not counted",
			Fields:  []Field{{"error", Failure}},
			Meaning: "The MeterProvider refused the counter of signals: no Prometheus rule can fire.",
			Action:  "See the error; a view that changes the counter's aggregation is the usual cause.",
			Waiver:  "said once at start; who alarms on the counter sees that it is absent",
		},
	}
}

// ConnectionUnready emits redis.connection.unready.
func (s *Signals) ConnectionUnready(role string, err error) {
	s.emit(ConnectionUnready, zap.String("role", role), errField(err))
}

// LoggerSampled emits coord.logger.sampled.
func (s *Signals) LoggerSampled() {
	s.emit(LoggerSampled)
}

// LoggerHidesEvent emits coord.logger.hides_event.
func (s *Signals) LoggerHidesEvent() {
	s.emit(LoggerHidesEvent)
}

// SignalsUncounted emits coord.signals.uncounted.
func (s *Signals) SignalsUncounted(err error) {
	s.emit(SignalsUncounted, errField(err))
}
