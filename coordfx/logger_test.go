package coordfx_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// A logger that alarms cannot rely on is told of at start, each fault once.
func TestTheStartTellsWhatAlarmsOnTheLogCannotSee(t *testing.T) {
	for name, c := range map[string]struct {
		core func(zapcore.Core) zapcore.Core
		with []zap.Field
		opts []zap.Option
		want []string
	}{
		"a plain logger": {},
		"a sampler": {
			core: func(c zapcore.Core) zapcore.Core { return zapcore.NewSamplerWithOptions(c, time.Second, 100, 100) },
			want: []string{"coord.logger.sampled"},
		},
		"an open namespace":        {with: []zap.Field{zap.Namespace("app")}, want: []string{"coord.logger.hides_event"}},
		"one under KeepEventFlat":  {with: []zap.Field{zap.Namespace("app")}, opts: []zap.Option{observability.KeepEventFlat()}},
		"a field called event too": {with: []zap.Field{zap.String("event", "mine")}, want: []string{"coord.logger.hides_event"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			core := testkit.RecordSignals(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out), zapcore.DebugLevel))
			if c.core != nil {
				core = c.core(core)
			}
			log := zap.New(core, c.opts...).With(c.with...)
			app := fx.New(fx.NopLogger, coordfx.Module, fx.Supply(config(), log), fx.Invoke(func(semantic.DistributedLock) {}))
			if err := app.Err(); err != nil {
				t.Fatal(err)
			}
			var told []string
			for line := range bytes.Lines(out.Bytes()) {
				var fields struct {
					Event string
					App   struct{ Event string }
				}
				if err := json.Unmarshal(line, &fields); err != nil {
					t.Fatal(err)
				}
				told = append(told, max(fields.Event, fields.App.Event))
			}
			if !slices.Equal(told, c.want) {
				t.Errorf("told %q, want %q", told, c.want)
			}
		})
	}
}
