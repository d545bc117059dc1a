package verify

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/contract"
)

// line is one line that zap wrote for a signal.
type line struct {
	Key  observability.Key
	Text []byte
}

// encoder is one way in which a service may have built its logger.
type encoder struct {
	Name string
	// Hidden: the event is not at the top level, and no filter may match.
	Hidden bool
	// Repeats is how often each signal is emitted. A sampler keeps less.
	Repeats int
	build   func(out string) (*zap.Logger, error)
}

// encoders are the loggers whose lines the filters are run on.
func encoders() []encoder {
	production := func(change func(*zap.Config), opts ...zap.Option) func(string) (*zap.Logger, error) {
		return func(out string) (*zap.Logger, error) {
			c := zap.NewProductionConfig()
			c.OutputPaths = []string{out}
			c.Level.SetLevel(zapcore.DebugLevel)
			change(&c)
			return c.Build(opts...)
		}
	}
	sampled := func(c *zap.Config) { c.Sampling = &zap.SamplingConfig{Initial: 5, Thereafter: 5} }
	unsampled := func(c *zap.Config) { c.Sampling = nil }
	in := func(build func(string) (*zap.Logger, error)) func(string) (*zap.Logger, error) {
		return func(out string) (*zap.Logger, error) {
			log, err := build(out)
			if err != nil {
				return nil, err
			}
			return log.Named("svc").With(zap.String("service", "booking"), zap.Namespace("app"), zap.String("tenant", "o")), nil
		}
	}
	return []encoder{
		{Name: "production", Repeats: 1, build: production(unsampled)},
		{Name: "production with RFC 3339 times", Repeats: 1, build: production(func(c *zap.Config) {
			unsampled(c)
			c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
			c.InitialFields = map[string]any{"service": "booking", "nested": map[string]any{"event": "redis.lock.lost"}}
		})},
		{Name: "sampled", Repeats: 20, build: production(sampled)},
		{Name: "namespaced", Repeats: 1, Hidden: true, build: in(production(unsampled))},
		{Name: "namespaced, KeepEventFlat", Repeats: 1, build: in(production(unsampled, observability.KeepEventFlat()))},
		{Name: "sampled and namespaced, KeepEventFlat", Repeats: 20, build: in(production(sampled, observability.KeepEventFlat()))},
	}
}

// lines emits every signal through a logger and returns what was written.
func (e encoder) lines() ([]line, error) {
	dir, err := os.MkdirTemp("", "coord-lines")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "log")
	log, err := e.build(out)
	if err != nil {
		return nil, err
	}
	if got := observability.HidesEvent(log); got != e.Hidden {
		return nil, fmt.Errorf("HidesEvent is %v of the logger %s, want %v", got, e.Name, e.Hidden)
	}
	keys, err := contract.MethodKeys()
	if err != nil {
		return nil, err
	}
	var all []line
	read := 0
	err = contract.EachMethod(observability.New(log), func(name string, call func()) error {
		for range e.Repeats {
			call()
		}
		text, err := os.ReadFile(out)
		if err != nil {
			return err
		}
		if read == len(text) {
			return fmt.Errorf("%s wrote nothing through the logger %s", name, e.Name)
		}
		for l := range bytes.Lines(text[read:]) {
			all = append(all, line{keys[name], bytes.TrimSpace(l)})
		}
		read = len(text)
		return nil
	})
	return all, err
}
