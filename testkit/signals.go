package testkit

import (
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap/zapcore"
)

// SignalsDir is the environment variable that names the directory which [RecordSignals]
// writes to.
const SignalsDir = "COORD_TEST_SIGNALS_DIR"

// RecordSignals returns core, or, where the variable [SignalsDir] names a directory, a
// core that also appends every line to a file there, one file for each process, as zap's
// production JSON. With the loggers of all tests built so, a directory holds after a run
// every signal that the tests have provoked. Lines are recorded whatever core's level.
func RecordSignals(core zapcore.Core) zapcore.Core {
	dir := os.Getenv(SignalsDir)
	if dir == "" {
		return core
	}
	file := filepath.Join(dir, fmt.Sprintf("%d.jsonl", os.Getpid()))
	encoder := zapcore.NewJSONEncoder(recordedConfig)
	return zapcore.NewTee(core, zapcore.NewCore(encoder, appending(file), zapcore.DebugLevel))
}

var recordedConfig = zapcore.EncoderConfig{
	TimeKey: "ts", LevelKey: "level", MessageKey: "msg", CallerKey: "caller", LineEnding: zapcore.DefaultLineEnding,
	EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeTime: zapcore.EpochTimeEncoder,
	EncodeDuration: zapcore.SecondsDurationEncoder, EncodeCaller: zapcore.ShortCallerEncoder,
}

// appending is a file that is opened for each line, so that nothing is left open. One
// write appends one line whole, among those of other loggers too.
type appending string

// Write appends one line.
func (a appending) Write(line []byte) (int, error) {
	f, err := os.OpenFile(string(a), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := f.Write(line)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return n, err
}

// Sync has nothing to do.
func (appending) Sync() error { return nil }
