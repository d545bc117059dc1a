package verify_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/render"
	"github.com/wrkbelt/coord/observability/verify"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := verify.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// loaded is the repository, loaded once.
var loaded = sync.OnceValues(func() (verify.Tree, error) { return verify.Load(filepath.Join("..", "..")) })

func tree(t *testing.T) verify.Tree {
	t.Helper()
	tr, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestNoSignalGoesUnwatched(t *testing.T) {
	for _, p := range tree(t).Check() {
		t.Error(p)
	}
}

func TestWhateverIsTakenOutIsMissed(t *testing.T) {
	mutations, err := tree(t).Mutations()
	if err != nil {
		t.Fatal(err)
	}
	alarms := 0
	for _, s := range observability.Catalog() {
		if s.Alarm != nil {
			alarms++
		}
	}
	// An emit, an entry, a panel and a runbook part of each; with an alarm the entry's, a
	// filter, an alarm and a rule too.
	if least := 4*len(observability.Catalog()) + 4*alarms; len(mutations) < least {
		t.Errorf("%d things taken out, want at least %d", len(mutations), least)
	}
	for _, m := range mutations {
		if m.Err != nil {
			t.Errorf("%s cannot be taken out: %v", m.Name, m.Err)
		} else if len(m.Check()) == 0 {
			t.Errorf("%s was taken out and nothing missed it", m.Name)
		}
	}
}

// has tells whether a checker found a problem with a text in it.
func has(problems []verify.Problem, checker, text string) bool {
	return slices.ContainsFunc(problems, func(p verify.Problem) bool {
		return p.Checker == checker && strings.Contains(p.String(), text)
	})
}

// Each fault in a generated file is found by the checker that is there for it.
func TestEveryFaultOfAFileIsFound(t *testing.T) {
	const cfn, prom, dash, book = render.CloudFormation, render.Prometheus, render.Dashboard, render.Runbook
	for _, c := range []struct {
		name, file, old, new string
		checker, want        string
	}{
		// the form
		{"not YAML", cfn, "Resources:\n", "Resources: {\n", "cloudformation", "did not find"},
		{"a misspelt property", cfn, "TreatMissingData", "TreatMissingDatum", "cloudformation", "TreatMissingDatum"},
		{"a missing property", cfn, "      FilterPattern: '{ $.event = \"redis.lock.lost\" }'\n", "", "cloudformation", "FilterPattern"},
		{"a property twice", cfn, "      Threshold: 5\n", "      Threshold: 5\n      Threshold: 5\n", "cloudformation", "twice"},
		{"a wrong type", cfn, "Period: 300", "Period: five", "cloudformation", "got string, want number"},
		{"no such comparison", cfn, "GreaterThanOrEqualToThreshold", "AtLeast", "cloudformation", "AtLeast"},
		{"no such statistic", cfn, "Statistic: Sum", "Statistic: Total", "cloudformation", "Total"},
		{"no such parameter", cfn, "!Ref AlarmTopicArn]", "!Ref Topic]", "cloudformation", `reference to "Topic"`},
		{"no such condition", cfn, "!If [HasAlarmTopic", "!If [HasTopic", "cloudformation", "no condition HasTopic"},
		{"another function", cfn, "!Sub \"Coord", "!Join \"Coord", "cloudformation", "!Join"},
		{"no such kind", cfn, "AWS::Logs::MetricFilter", "AWS::Logs::Filter", "cloudformation", "value must be 'AWS::Logs::MetricFilter'"},
		{"half a minute", cfn, "Period: 300", "Period: 30", "cloudformation", "multiple of 60"},
		{"more points than periods", cfn, "DatapointsToAlarm: 1", "DatapointsToAlarm: 2", "cloudformation", "no more points"},
		{"a long pattern", cfn, `"redis.lock.lost" }'`, `"redis.lock.lost` + strings.Repeat("x", 1024) + `" }'`, "cloudformation", "at most 1024"},
		{"a colon in a name", cfn, "FilterName: redis.lock.lost", "FilterName: redis:lock", "cloudformation", "want the form"},
		{"a name twice", cfn, "FilterName: redis.lock.lost", "FilterName: redis.lock.unavailable", "cloudformation", "the name of another"},
		{"a long template", cfn, "Description: Alarms", "Description: Alarms #" + strings.Repeat("x", 30_000), "cloudformation", "51200"},
		// what it does
		{"another field", cfn, `$.event = "redis.lock.lost"`, `$.msg = "redis.lock.lost"`, "cloudwatch", "matches the field msg"},
		{"a wildcard", cfn, `"redis.lock.lost" }'`, `"redis.lock.*" }'`, "cloudwatch", "want the form"},
		{"another key", cfn, `"redis.lock.lost" }'`, `"redis.lock.lots" }'`, "cloudwatch", "redis.lock.lost: has an alarm in the catalog and no filter"},
		{"a threshold too high", cfn, "Threshold: 5", "Threshold: 6", "cloudwatch", "as many events as the threshold: fires = false"},
		{"a threshold too low", cfn, "Threshold: 5", "Threshold: 4", "cloudwatch", "one event less: fires = true"},
		{"a short period", cfn, "Threshold: 5\n      Period: 300", "Threshold: 5\n      Period: 60", "cloudwatch", "fires = false"},
		{"not sustained", cfn, "DatapointsToAlarm: 3", "DatapointsToAlarm: 1", "cloudwatch", "one moment that many replicas report: fires = true"},
		{"an average", cfn, "Statistic: Sum", "Statistic: Average", "cloudwatch", "not on a sum"},
		{"silence as alarm", cfn, "TreatMissingData: notBreaching", "TreatMissingData: breaching", "cloudwatch", "silence as health"},
		{"nobody told", cfn, "AlarmActions: !If", "InsufficientDataActions: !If", "cloudwatch", "AlarmActions"},
		{"another metric", cfn, "MetricName: redis.lock.lost\n      Statistic", "MetricName: redis.lock.gone\n      Statistic", "cloudwatch", "no filter makes"},
		{"no link", cfn, "#redislocklost", "#lost", "cloudwatch", "does not lead to the runbook"},
		{"counted by ten", cfn, `MetricValue: "1"`, `MetricValue: "10"`, "cloudwatch", "count by one"},

		{"no expression", prom, `expr: "round`, `expr: "rund`, "prometheus", "rund"},
		{"an unknown field", prom, "annotations:", "notes:", "prometheus", "notes"},
		{"a broken template", prom, `summary: "redis.lock.lost`, `summary: "{{ .redis.lock.lost`, "prometheus", "template"},
		{"another metric", prom, `coord_signals_total{event=\"redis.lock.lost\"}[5m]`, `coord_signals{event=\"redis.lock.lost\"}[5m]`, "prometheus", "want coord_signals_total"},
		{"every event", prom, `coord_signals_total{event=\"redis.lock.lost\"}[5m]`, `coord_signals_total[5m]`, "prometheus", "every selector on one event"},
		{"a threshold too low", prom, ">= 5", ">= 4", "prometheus", "one event less: fires = true"},
		{"a threshold too high", prom, ">= 5", ">= 6", "prometheus", "fires = false"},
		{"a plain increase", prom, `round(sum by (job, event) ((increase(coord_signals_total{event=\"redis.lock.lost\"}[5m]) and last_over_time(coord_signals_total{event=\"redis.lock.lost\"}[6h] offset 5m)) or (last_over_time(coord_signals_total{event=\"redis.lock.lost\"}[5m]) unless last_over_time(coord_signals_total{event=\"redis.lock.lost\"}[6h] offset 5m))))`, `increase(coord_signals_total{event=\"redis.lock.lost\"}[5m])`, "prometheus", "of new replicas: fires = false"},
		{"a young replica by one moment", prom, `last_over_time(coord_signals_total{event=\"redis.lock.lost\"}[6h] offset 5m)`, `coord_signals_total{event=\"redis.lock.lost\"} offset 5m`, "prometheus", "old events, failed scrapes"},
		{"not sustained", prom, ">= 3", ">= 1", "prometheus", "one moment that many replicas report: fires = true"},
		{"a wait", prom, "        labels:\n", "        for: 5m\n        labels:\n", "prometheus", "waits for 5m"},
		{"no link", prom, "#redislocklost", "#lost", "prometheus", "runbook_url"},

		{"not JSON", dash, `"panels": [`, `"panels": `, "grafana", "invalid character"},
		{"an unknown field", dash, `"gridPos"`, `"gridPlace"`, "grafana", "gridPlace"},
		{"another event", dash, `redis.lock.lost\",`, `redis.lock.gone\",`, "grafana", `query is on "redis.lock.gone"`},
		{"another threshold", dash, `"value": 5`, `"value": 4`, "grafana", "does not draw the threshold 5"},
		{"another title", dash, `"title": "redis.lock.lost"`, `"title": "lost"`, "grafana", "redis.lock.lost: has no panel"},
		{"no link", dash, "#redislocklost", "#lost", "grafana", "link to the runbook"},

		{"another action", book, "Raise the ttl", "Lower the ttl", "runbook", "redis.lock.lost: its part"},
		{"another alarm", book, "**Alarm**: ≥ 5 in", "**Alarm**: ≥ 6 in", "runbook", "does not say"},
		{"another heading", book, "## redis.lock.lost", "## redis.lock.lots", "runbook", "redis.lock.lost: is not in the runbook"},
	} {
		broken := tree(t)
		if !bytes.Contains(broken.Files[c.file], []byte(c.old)) {
			t.Errorf("%s: %s does not contain %q", c.name, c.file, c.old)
			continue
		}
		broken.Files = maps.Clone(broken.Files)
		broken.Files[c.file] = bytes.ReplaceAll(broken.Files[c.file], []byte(c.old), []byte(c.new))
		if problems := broken.Check(); !has(problems, c.checker, c.want) {
			t.Errorf("%s in %s: %s found no %q, all found: %.400v", c.name, c.file, c.checker, c.want, problems)
		}
	}
}

// Whatever is logged past the catalog is found, and what only looks like it is not.
func TestWhatIsLoggedPastTheCatalogIsFound(t *testing.T) {
	for _, c := range []struct{ name, in, code, want string }{
		{"a logger's method", "redismodule", `import "go.uber.org/zap"; func planted(l *zap.Logger) { l.Error("lost") }`, "(*go.uber.org/zap.Logger).Error"},
		{"it as a value", "redismodule", `import "go.uber.org/zap"; func planted(l *zap.Logger) any { return l.Warn }`, "(*go.uber.org/zap.Logger).Warn"},
		{"a sugared logger", "mongolog", `import "go.uber.org/zap"; func planted(l *zap.SugaredLogger) { l.Infow("x", "event", "y") }`, "SugaredLogger).Infow"},
		{"a checked entry", "cronfx", `import "go.uber.org/zap"; func planted(l *zap.Logger) { l.Check(0, "x").Write() }`, "CheckedEntry).Write"},
		{"a core", "cronfx", `import ("go.uber.org/zap"; "go.uber.org/zap/zapcore"); func planted(l *zap.Logger) { l.Core().Write(zapcore.Entry{}, nil) }`, "Core).Write"},
		{"the global logger", "sqsfanout", `import "go.uber.org/zap"; func planted() any { return zap.L() }`, "zap.L writes"},
		{"slog", "sqsfanout", `import "log/slog"; func planted() { slog.Error("x") }`, "slog.Error"},
		{"log", "semantic", `import "log"; func planted() { log.Print("x") }`, "log.Print"},
		{"a field event", "coordfx", `import "go.uber.org/zap"; func planted() any { return zap.String("event", "x") }`, "makes a field event"},
		{"a key written out", "redismodule", `const planted = "redis.lock.lost"`, `"redis.lock.lost" is a signal's key`},
		{"a key in two parts", "redismodule", `const prefix = "redis.lock"; var planted = prefix + ".lost"`, `"redis.lock.lost" is a signal's key`},
		{"a key of no entry", "redismodule", `var planted = "redis.lock.renewed"`, `"redis.lock.renewed" is a signal's key, or looks like one`},
		{"a key of coord", "coordfx", `var planted = "coord.logger.sampled"`, "coord.logger.sampled"},
		{"a key made of a text", "coordfx", `import "github.com/wrkbelt/coord/observability"; func planted(s string) observability.Key { return observability.Key(s) }`, "makes a Key"},
		{"a key in the catalog's room", "observability", `var planted = "redis.lock.lost"`, "redis.lock.lost"},
		{"another place that emits", "cronfx", `import "github.com/wrkbelt/coord/observability"; func planted(s *observability.Signals) { s.LockLost("k") }`, "redis.lock.lost cronfx.planted"},

		{"a logger that is passed on", "coordfx", `import "go.uber.org/zap"; func planted(l *zap.Logger) *zap.Logger { return l.Named("x").With(zap.Error(nil)) }`, ""},
		{"an operation", "redismodule", `const planted = "redis.start"`, ""},
		{"a metric", "redismodule", `const planted = "coord.redis.commands"`, ""},
		{"a key of the catalog", "redismodule", `import "github.com/wrkbelt/coord/observability"; const planted = observability.LockLost`, ""},
		{"a sentence", "redismodule", `const planted = "after redis.lock.lost nothing is sure"`, ""},
		{"another Error", "redismodule", `func planted(err error) string { return err.Error() }`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			planted := tree(t)
			path := "github.com/wrkbelt/coord/" + c.in
			code, err := planted.Code.With(path, "planted.go", []byte("package "+c.in+"; "+c.code))
			if err != nil {
				t.Fatal(err)
			}
			planted.Code = code
			problems := planted.Check()
			if c.want == "" && len(problems) > 0 {
				t.Errorf("found %v, want nothing", problems)
			}
			if c.want != "" && !has(problems, "sites", c.want) {
				t.Errorf("found %v, want %q", problems, c.want)
			}
		})
	}
}

func TestPatternsOfTheOneFormMatchTheTopLevel(t *testing.T) {
	p, err := verify.ParsePattern(`{ $.event = "redis.lock.lost" }`)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{
		`{"event":"redis.lock.lost"}`:                             true,
		`{"level":"warn","n":1,"event":"redis.lock.lost","x":{}}`: true,
		`{"event":"redis.lock.lost2"}`:                            false,
		`{"event":"redis.lock"}`:                                  false,
		`{"app":{"event":"redis.lock.lost"}}`:                     false,
		`{"event":{"event":"redis.lock.lost"}}`:                   false,
		`{"event":["redis.lock.lost"]}`:                           false,
		`{"msg":"{\"event\":\"redis.lock.lost\"}"}`:               false,
		`{"event":"redis.lock.lost","event":"redis.lock.lost"}`:   false,
		`{"event":"mine","event":"redis.lock.lost"}`:              false,
		`{"event":"redis.lock.lost"`:                              false,
		`["event","redis.lock.lost"]`:                             false,
		`redis.lock.lost`:                                         false,
		``:                                                        false,
	} {
		if got := p.Match([]byte(line)); got != want {
			t.Errorf("%s: match = %v, want %v", line, got, want)
		}
	}
	for _, other := range []string{
		``, `redis.lock.lost`, `{ $.event = "redis.*" }`, `{ $.event != "x" }`, `{ $.a.b = "x" }`, `{ $.event = "x" && $.a = 1 }`,
		`{ $.event = "a"b" }`, `{ $.event = %x% }`, `{ $.event = "" }`,
	} {
		if p, err := verify.ParsePattern(other); err == nil {
			t.Errorf("%s: read as %+v, want it refused", other, p)
		}
	}
}
