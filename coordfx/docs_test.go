package coordfx_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/wrkbelt/coord/coordfx"
)

var update = flag.Bool("update", false, "rewrite the table in docs/configuration.md")

// TestTheConfigurationPageListsEveryVariable keeps the page's table equal to Variables().
// go test ./coordfx -run ConfigurationPage -update rewrites it.
func TestTheConfigurationPageListsEveryVariable(t *testing.T) {
	const page, begin, end = "../docs/configuration.md", "<!-- variables: begin -->\n", "<!-- variables: end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	var b strings.Builder
	b.WriteString("| variable | field of `coordfx.Config` | default | meaning |\n|---|---|---|---|\n")
	for _, v := range coordfx.Variables() {
		secret := ""
		if v.Secret {
			secret = " (secret: appears in no error)"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s%s |\n", v.Name, v.Setting, v.Default, v.Meaning, secret)
	}
	if have == b.String() {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the table in %s is not that of Variables(): go test ./coordfx -run ConfigurationPage -update", page)
}
