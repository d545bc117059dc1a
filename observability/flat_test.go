package observability_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/observability"
)

// jsonLogger writes production's JSON to a buffer.
func jsonLogger(opts ...zap.Option) (*zap.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zapcore.DebugLevel), opts...), &out
}

func TestALoggerThatHidesTheEventIsDetectedWithoutALine(t *testing.T) {
	plain, out := jsonLogger()
	config := zap.NewProductionEncoderConfig()
	config.MessageKey = "event"
	repeated := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(config), zapcore.AddSync(out), zapcore.DebugLevel))
	console := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.AddSync(out), zapcore.DebugLevel))
	flat, _ := jsonLogger(observability.KeepEventFlat())
	sampled := zap.New(zapcore.NewSamplerWithOptions(plain.Core(), time.Second, 1, 0))
	for name, c := range map[string]struct {
		log  *zap.Logger
		want bool
	}{
		"a plain logger":                    {plain, false},
		"a logger with fields":              {plain.With(zap.String("service", "x"), zap.Dict("d", zap.Int("event", 1))), false},
		"an open namespace":                 {plain.With(zap.Namespace("app")), true},
		"a namespace among fields":          {plain.With(zap.String("a", "b"), zap.Namespace("app"), zap.String("c", "d")), true},
		"a lazy namespace":                  {plain.WithLazy(zap.Namespace("app")), true},
		"a namespace under a sampler":       {sampled.With(zap.Namespace("app")), true},
		"a namespace of one core of two":    {zap.New(zapcore.NewTee(console.Core(), plain.With(zap.Namespace("app")).Core())), true},
		"a field named event":               {plain.With(zap.String("event", "mine")), true},
		"the message under the name event":  {repeated, true},
		"a console":                         {console.With(zap.Namespace("app")), false},
		"a logger of nothing":               {zap.NewNop(), false},
		"no logger":                         {nil, false},
		"a namespace, but KeepEventFlat":    {flat.With(zap.Namespace("app")), false},
		"two of them, but KeepEventFlat":    {flat.With(zap.Namespace("app"), zap.Int("n", 1)).With(zap.Namespace("b")), false},
		"a named logger, and KeepEventFlat": {flat.Named("x"), false},
	} {
		if got := observability.HidesEvent(c.log); got != c.want {
			t.Errorf("%s: hides the event = %v, want %v", name, got, c.want)
		}
	}
	if out.Len() != 0 {
		t.Errorf("the detection wrote %q", out)
	}
}

func TestKeepEventFlatMovesTheEventOfCoordAndNothingElse(t *testing.T) {
	log, out := jsonLogger(observability.KeepEventFlat(), zap.AddCaller())
	log = log.With(zap.String("service", "booking")).With(zap.Int("pid", 7), zap.Namespace("app"), zap.String("tenant", "o")).With(zap.Int("n", 1))

	observability.New(log).LockUnavailable("k", "UNKNOWN", errors.New("cut"))
	log.Info("the user's own", zap.String("event", "mine"))

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var coord, user map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &coord); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(lines[1]), &user); err != nil {
		t.Fatal(err)
	}
	app := coord["app"].(map[string]any)
	if coord["event"] != "redis.lock.unavailable" || coord["service"] != "booking" || coord["pid"] != 7.0 {
		t.Errorf("top level of %s: want the event, and the fields from before the namespace", lines[0])
	}
	if app["key"] != "k" || app["tenant"] != "o" || app["n"] != 1.0 || app["event"] != nil {
		t.Errorf("namespace of %s: want the line's other fields, and no event", lines[0])
	}
	if caller, _ := coord["caller"].(string); !strings.Contains(caller, "flat_test.go") {
		t.Errorf("caller %q, want that of the signal", caller)
	}
	if user["event"] != nil || user["app"].(map[string]any)["event"] != "mine" {
		t.Errorf("%s: want the user's event where the user put it", lines[1])
	}
}

// A sampler and a tee below it go on deciding.
func TestKeepEventFlatLeavesTheDecisionToTheWrappedCore(t *testing.T) {
	inner, out := jsonLogger()
	errorsOnly, errs := jsonLogger(zap.IncreaseLevel(zapcore.ErrorLevel))
	core := zapcore.NewSamplerWithOptions(zapcore.NewTee(inner.Core(), errorsOnly.Core()), time.Hour, 2, 0)
	log := zap.New(core, observability.KeepEventFlat()).With(zap.Namespace("app"))
	if !observability.Sampled(log.Named("probe")) {
		t.Error("the sampler is not seen through the option")
	}
	signals := observability.New(log)
	for range 5 {
		signals.LockLost("k") // a warning
		signals.LockUnavailable("k", "UNKNOWN", nil)
	}
	if n := strings.Count(out.String(), `"event":"redis.lock.lost"`); n != 2 {
		t.Errorf("%d warnings written, want the sampler's 2", n)
	}
	if n := strings.Count(errs.String(), "redis.lock.lost"); n != 0 {
		t.Errorf("%d warnings at the core for errors, want 0", n)
	}
	if n := strings.Count(errs.String(), `"event":"redis.lock.unavailable"`); n != 2 {
		t.Errorf("%d errors at the core for errors, want 2", n)
	}
}
