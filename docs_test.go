package coord

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wrkbelt/coord/observability"
)

// The documentation is held to the code: what it shows compiles, and what it names exists.

var (
	goBlock  = regexp.MustCompile("(?s)\n```go\n(.*?)```")
	mdLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^## (.*)$`)
	eventKey = regexp.MustCompile("`((?:redis|mongo|sqs|cron)\\.[a-z_]+(?:\\.[a-z_]+)*)`")
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pages returns the README and every page of docs.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("docs/*.md")
	if err != nil || len(all) == 0 {
		t.Fatal("no pages", err)
	}
	return append(all, "README.md")
}

func TestTheReadmesProgramIsTheTestedOne(t *testing.T) {
	block := goBlock.FindStringSubmatch(readFile(t, "README.md"))
	if block == nil {
		t.Fatal("README.md has no Go block")
	}
	program := readFile(t, "examples/hello/main.go")
	if block[1] != program {
		t.Errorf("README.md's first Go block is not examples/hello/main.go:\n%s", block[1])
	}
	if n := strings.Count(program, "\n"); n > 20 {
		t.Errorf("it has %d lines, want at most 20", n)
	}
}

// Every Go block is a passage of a file under examples/, whatever its indentation.
func TestEveryGoBlockOfTheDocsCompiles(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"examples/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			sources = append(sources, flush(readFile(t, file)))
		}
	}
	for _, page := range pages(t) {
		if page == "docs/boundary.md" {
			continue // its code is built by a test of its own, in testkit/boundary
		}
		for _, block := range goBlock.FindAllStringSubmatch(readFile(t, page), -1) {
			code := flush(block[1])
			if !slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, code) }) {
				t.Errorf("%s shows code that is in no file under examples/:\n%s", page, block[1])
			}
		}
	}
}

// flush takes the indentation off every line.
func flush(code string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}

func TestEveryLinkOfTheDocsLeadsSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, link := range mdLink.FindAllStringSubmatch(readFile(t, page), -1) {
			target, _, _ := strings.Cut(link[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s links to %s: %v", page, link[1], err)
			}
		}
	}
}

func TestEveryPrimitivesPageHasTheSameHeadings(t *testing.T) {
	want := []string{
		"What it is for, and when not to use it", "The shortest code that works", "Promises and limits",
		"Cost", "When the backend is down", "What operators see", "Testing",
	}
	for _, primitive := range []string{
		"lock", "lease", "cache", "rate-limiter", "broadcast", "idempotency-log", "cron", "fan-out",
	} {
		page := "docs/" + primitive + ".md"
		var have []string
		for _, h := range heading.FindAllStringSubmatch(readFile(t, page), -1) {
			if slices.Contains(want, h[1]) {
				have = append(have, h[1])
			}
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s has the headings %q, want %q", page, have, want)
		}
	}
}

// An event that the documentation names is one of the catalog.
func TestEverySignalOfTheDocsExists(t *testing.T) {
	keys := map[string]bool{}
	for _, s := range observability.Catalog() {
		keys[string(s.Key)] = true
	}
	for _, page := range pages(t) {
		for _, key := range eventKey.FindAllStringSubmatch(readFile(t, page), -1) {
			if !keys[key[1]] {
				t.Errorf("%s names the signal %s, which is not in the catalog", page, key[1])
			}
		}
	}
}
