package boundary_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const guide = "../../docs/boundary.md"

var fileForm = regexp.MustCompile("(?s)<!-- file: ([a-z_.]+) -->\n```go\n(.*?)```")

// scratch makes the guide's service: a module outside of this repository that knows the
// checkout by replace directives only.
func scratch(t *testing.T) (dir string) {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := fileForm.FindAllStringSubmatch(string(text), -1)
	if len(files) != 2 {
		t.Fatalf("%d files in %s, want main.go and its test", len(files), guide)
	}
	for _, f := range files {
		write(f[1], f[2])
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// The versions of what a service asks for itself are this repository's.
	requires := ""
	for _, m := range []string{"go.uber.org/fx", "go.uber.org/zap"} {
		list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", m)
		list.Dir, list.Env = root, append(os.Environ(), "GOWORK=off")
		version, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		requires += fmt.Sprintf("require %s %s", m, version)
	}
	write("go.mod", fmt.Sprintf(`module example.com/bookings

go 1.26.0

%srequire (
	github.com/wrkbelt/coord v0.0.0
	github.com/wrkbelt/coord/testkit/boundary v0.0.0
)

replace github.com/wrkbelt/coord => %s

replace github.com/wrkbelt/coord/testkit/boundary => %s
`, requires, root, filepath.Join(root, "testkit", "boundary")))
	var sums strings.Builder
	for _, name := range []string{filepath.Join(root, "go.sum"), "go.sum"} {
		sum, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sums.Write(sum)
	}
	write("go.sum", sums.String())
	return dir
}

// goTest runs the tests of the scratch module.
func goTest(t *testing.T, dir string) (output string, ok bool) {
	t.Helper()
	cmd := exec.Command("go", "test", "-count=1", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false")
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func TestTheGuideWorksInAModuleOutside(t *testing.T) {
	dir := scratch(t)
	if out, ok := goTest(t, dir); !ok {
		t.Fatalf("the guide's service fails its own tests:\n%s", out)
	}

	// A client in a constructor: the code test sees it.
	planted := filepath.Join(dir, "bookings.go")
	source := `package main

import (
	"github.com/redis/go-redis/v9"
)

type sessions struct{}

func newSessions(client *redis.Client) *sessions { return &sessions{} }
`
	if err := os.WriteFile(planted, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	out, ok := goTest(t, dir)
	if ok || !strings.Contains(out, "FAIL: TestCode") || strings.Contains(out, "FAIL: TestGraph") ||
		!strings.Contains(out, "bookings.go:9:26: parameter of newSessions leads to the raw github.com/redis/go-redis/v9.Client") {
		t.Errorf("a planted client:\n%s", out)
	}

	// The same with a reason, given to the graph: the graph test sees it.
	source = "//coord:allow-raw the test of the guide\n\n" + strings.Replace(source, "func newSessions", `func newClient() *redis.Client { return redis.NewClient(&redis.Options{}) }

func newSessions`, 1)
	if err := os.WriteFile(planted, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(main), "newBookings),\n", "newBookings,\n\t\t\tnewClient, //coord:allow-raw the test of the guide\n\t\t),\n", 1)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	out, ok = goTest(t, dir)
	if ok || !strings.Contains(out, "the app provides *redis.Client by example.com/bookings.newClient()") ||
		!strings.Contains(out, "boundary: 2 exceptions, at most 0 are allowed") {
		t.Errorf("a planted provider:\n%s", out)
	}
}
