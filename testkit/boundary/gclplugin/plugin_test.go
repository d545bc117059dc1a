package gclplugin_test

import (
	"os"
	"testing"

	"github.com/golangci/plugin-module-register/register"

	"github.com/wrkbelt/coord/testkit/boundary/gclplugin"
	"github.com/wrkbelt/coord/testkit/boundary/internal/driver"
)

// lint runs what golangci-lint would get from the registered plugin.
func lint(t *testing.T, settings any, pattern string) *driver.Report {
	t.Helper()
	newPlugin, err := register.GetPlugin(gclplugin.Name)
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := newPlugin(settings)
	if err != nil {
		t.Fatal(err)
	}
	if mode := plugin.GetLoadMode(); mode != register.LoadModeTypesInfo {
		t.Errorf("load mode %q: the analyzer needs types", mode)
	}
	analyzers, err := plugin.BuildAnalyzers()
	if err != nil || len(analyzers) != 1 {
		t.Fatalf("analyzers = %v, %v", analyzers, err)
	}
	report, err := driver.Run(analyzers[0], driver.Request{
		Dir: "../testdata/app", Patterns: []string{pattern},
		Env: append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=vendor -buildvcs=false"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestThePluginFindsAndFollowsItsSettings(t *testing.T) {
	if n := len(lint(t, nil, "./escapes/alias").Findings); n != 3 {
		t.Errorf("%d findings without settings, want 3", n)
	}
	// As golangci-lint decodes YAML.
	allowed := map[string]any{"allowed": []any{"example.com/app/escapes"}}
	if n := len(lint(t, allowed, "./escapes/alias").Findings); n != 0 {
		t.Errorf("%d findings in an allowed package", n)
	}
	raw := map[string]any{"raw": []any{"example.com/app/clean/redis"}}
	if n := len(lint(t, raw, "./clean/service").Findings); n == 0 {
		t.Error("no finding for a raw package of the settings")
	}
}

func TestThePluginRefusesSettingsItDoesNotKnow(t *testing.T) {
	if _, err := gclplugin.New(map[string]any{"permitted": []any{"x"}}); err == nil {
		t.Error("an unknown setting is without effect")
	}
}
