package observability_test

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
)

// zap#1221, jaeger#160: a sampler drops repeats without a word.
func TestASampledLoggerIsDetectedWithoutALine(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	for name, c := range map[string]struct {
		log  *zap.Logger
		want bool
	}{
		"production's sampler": {zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 100, 100)), true},
		"a strict sampler":     {zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 1, 0)), true},
		"a plain logger":       {zap.New(core), false},
		"a logger of nothing":  {zap.NewNop(), false},
		"no logger":            {nil, false},
	} {
		if got := observability.Sampled(c.log); got != c.want {
			t.Errorf("%s: sampled %v, want %v", name, got, c.want)
		}
	}
	if n := logs.Len(); n != 0 {
		t.Errorf("the detection wrote %d lines", n)
	}
}
