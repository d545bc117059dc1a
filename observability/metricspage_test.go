package observability_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/wrkbelt/coord/observability"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md anew")

// failures are said once, below the table.
const failures = "unavailable, unknown, failed, corrupt, invalid, cancelled, closed"

const metricsPage = "../docs/metrics.md"

// TestTheMetricsPageHasEveryInstrument: the table is written from the list. After a
// change of the list:
//
//	go test ./observability -run MetricsPage -update
func TestTheMetricsPageHasEveryInstrument(t *testing.T) {
	b, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- instruments: written by go test ./observability -run MetricsPage -update -->\n", "<!-- end -->"
	before, rest, ok1 := strings.Cut(string(b), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", metricsPage)
	}
	want := metricsTable()
	if have == want {
		return
	}
	if !*update {
		t.Fatalf("%s has not the instruments of observability/instruments.go; want\n%s", metricsPage, want)
	}
	if err := os.WriteFile(metricsPage, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func metricsTable() string {
	var b strings.Builder
	b.WriteString("| metric | kind, unit | attributes | what it says |\n|---|---|---|---|\n")
	for _, d := range observability.Instruments() {
		var attributes []string
		for _, a := range d.Attributes {
			values := strings.Replace(strings.Join(a.Values, ", "), failures, "or a failure", 1)
			if values == "" {
				values = "few names that the code defines"
			}
			attributes = append(attributes, fmt.Sprintf("`%s`: %s", a.Key, values))
		}
		fmt.Fprintf(&b, "| `%s` | %s, %s | %s | %s |\n", d.Name, d.Kind, d.Unit, strings.Join(attributes, "; "), d.Meaning)
	}
	return b.String()
}
