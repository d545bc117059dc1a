// Package render writes what operators deploy and read from the catalog: CloudFormation
// alarms, Prometheus rules, a Grafana dashboard and the runbook.
package render

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"
	"time"
	"unicode"

	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/observability"
)

// The generated files, by their place in the repository.
const (
	CloudFormation = "observability/alarms/observability.yml"
	Prometheus     = "observability/alarms/prometheus.yml"
	Dashboard      = "observability/alarms/dashboard.json"
	Runbook        = observability.RunbookPage
)

// runbookURL is where the runbook is read.
const runbookURL = "https://github.com/wrkbelt/coord/blob/main/" + Runbook

var (
	//go:embed cloudformation.yml.tmpl
	cloudFormationText string
	//go:embed prometheus.yml.tmpl
	prometheusText string
	//go:embed runbook.md.tmpl
	runbookText string
)

// Files returns every generated file of a catalog.
func Files(catalog []observability.Signal) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, text := range map[string]string{
		CloudFormation: cloudFormationText, Prometheus: prometheusText, Runbook: runbookText,
	} {
		page, err := template.New(name).Funcs(functions).Parse(text)
		if err != nil {
			return nil, err
		}
		var out strings.Builder
		if err := page.Execute(&out, catalog); err != nil {
			return nil, err
		}
		files[name] = []byte(out.String())
	}
	board, err := dashboard(catalog)
	files[Dashboard] = board
	return files, err
}

var functions = template.FuncMap{
	"camel":    Camel,
	"quote":    quote,
	"runbook":  runbookLink,
	"minutes":  minutes,
	"expr":     ruleExpr,
	"severity": severity,
	"kebab":    func(k observability.Key) string { return kebab.Replace(string(k)) },
	"level":    func(l zapcore.Level) string { return l.String() },
	"fields":   fieldList,
}

var kebab = strings.NewReplacer(".", "-", "_", "-")

// Camel makes one word of a key: RedisLockUnavailable.
func Camel(k observability.Key) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(string(k), func(r rune) bool { return r == '.' || r == '_' }) {
		b.WriteRune(unicode.ToUpper(rune(word[0])))
		b.WriteString(word[1:])
	}
	return b.String()
}

// quote makes a string of JSON, which is one of YAML.
func quote(s string) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return strings.TrimSpace(b.String()), err
}

func runbookLink(s observability.Signal) string { return runbookURL + "#" + s.Anchor() }

func minutes(d time.Duration) int { return int(d / time.Minute) }

func severity(l zapcore.Level) string {
	if l >= zapcore.ErrorLevel {
		return "critical"
	}
	return "warning"
}

func fieldList(fields []observability.Field) string {
	names := []string{}
	for _, f := range fields {
		names = append(names, fmt.Sprintf("`%s` (%s)", f.Name, f.Kind))
	}
	return strings.Join(names, ", ")
}
