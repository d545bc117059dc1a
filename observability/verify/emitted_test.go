package verify_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/contract"
)

// recorded writes lines as a test run records them: every signal, but those left out.
func recorded(t *testing.T, more string, leftOut ...observability.Key) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	config := zap.NewProductionEncoderConfig()
	core := zapcore.NewCore(zapcore.NewJSONEncoder(config), f, zapcore.DebugLevel)
	plain := observability.New(zap.New(core).With(zap.String("replica", "1")))
	hidden := observability.New(zap.New(core).With(zap.Namespace("app")))
	keys, err := contract.MethodKeys()
	if err != nil {
		t.Fatal(err)
	}
	for _, signals := range []*observability.Signals{plain, hidden} {
		err := contract.EachMethod(signals, func(name string, call func()) error {
			skip := (keys[name] == observability.LoggerHidesEvent) != (signals == hidden)
			for _, key := range leftOut {
				skip = skip || key == keys[name]
			}
			if !skip {
				call()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteString(more); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWhatWasEmittedIsWhatTheCatalogSays(t *testing.T) {
	const good = `{"level":"warn","ts":1,"msg":"m","key":"k","event":"redis.lock.lost"}` + "\n"
	root := filepath.Join("..", "..")
	for _, c := range []struct {
		name, more string
		leftOut    observability.Key
		want       string
	}{
		{"every signal", good, "", ""},
		{"one never", "", observability.LockLost, "redis.lock.lost: no test has made the code emit it"},
		{"the hidden one never", "", observability.LoggerHidesEvent, "coord.logger.hides_event: no test"},
		{"one of no entry", strings.ReplaceAll(good, "lost", "gone"), "", "redis.lock.gone: is not in the catalog"},
		{"a line of no event", `{"level":"warn","msg":"m"}` + "\n", "", "is not in the catalog"},
		{"a hidden line", `{"level":"warn","app":{"key":"k","event":"redis.lock.lost"}}` + "\n", "", "redis.lock.lost: its pattern matches: false"},
		{"another level", strings.ReplaceAll(good, "warn", "error"), "", `redis.lock.lost: its level is "error"`},
		{"no field", strings.ReplaceAll(good, `"key"`, `"kee"`), "", "redis.lock.lost: its field key is <nil>"},
		{"another kind", strings.ReplaceAll(good, `"k"`, `7`), "", "redis.lock.lost: its field key is 7, want a text"},
		{"half a line", good[:30] + "\n", "", "unexpected end"},
	} {
		problems, lines, err := tree(t).CheckEmitted(root, recorded(t, c.more, c.leftOut))
		if err != nil {
			t.Fatal(err)
		}
		if lines < len(observability.Catalog())-1 {
			t.Errorf("%s: %d lines read", c.name, lines)
		}
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0].String(), c.want)) {
			t.Errorf("%s: found %v, want %q alone", c.name, problems, c.want)
		}
	}
}

// A signal that a test emits itself proves nothing of the code.
func TestATestThatEmitsASignalItselfIsFound(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"redismodule/a_test.go":   "package p; func f() { signals.LockLost(\"k\") }",
		"redismodule/b_test.go":   "package p; import \"github.com/wrkbelt/coord/observability\"; var k = observability.LockLost",
		"observability/c_test.go": "package p; func f() { signals.LockLost(\"k\") }",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	problems, _, err := tree(t).CheckEmitted(root, recorded(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 1 || !strings.Contains(problems[0].Text, "a_test.go:1:23: a test calls LockLost itself") {
		t.Errorf("found %v, want the one call in redismodule/a_test.go", problems)
	}
}
