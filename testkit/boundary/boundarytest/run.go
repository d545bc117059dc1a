// Package boundarytest holds the boundary of a service in its own tests: [Run] judges
// the code, [Graph] and [Unreachable] judge what an fx app's options put into its graph.
package boundarytest

import (
	"testing"

	"github.com/wrkbelt/coord/testkit/boundary"
	"github.com/wrkbelt/coord/testkit/boundary/internal/driver"
)

// T is the part of *testing.T that the helpers use.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

var _ T = (*testing.T)(nil)

// Settings change what [RunWith] looks at; the zero value is what [Run] does.
type Settings struct {
	boundary.Config

	Dir     string   // where the go command runs; "" is the test's directory
	Env     []string // of the go command; nil is the process's
	Tags    string   // build tags, separated by commas: run once for each set in use
	NoTests bool     // leave _test.go files out
	// MaxWaivers is how many //coord:allow-raw exceptions the code may have; the test
	// fails on one more, so that a new one is seen in review. Default: none.
	MaxWaivers int
}

// Run fails the test for every place in the packages, test files included, that can
// receive, hold, make or hand on a raw Redis client. Patterns are as of go list; none
// is ./... of the test's directory. Packages that do not compile, and patterns without
// packages, fail it too. Exceptions are logged, and fail the test: allow a number of
// them with [RunWith].
func Run(t T, patterns ...string) {
	t.Helper()
	RunWith(t, Settings{}, patterns...)
}

// RunWith is [Run] with settings.
func RunWith(t T, s Settings, patterns ...string) {
	t.Helper()
	report, err := driver.Run(boundary.NewAnalyzer(s.Config), driver.Request{
		Dir: s.Dir, Env: s.Env, Patterns: patterns, Tags: s.Tags, NoTests: s.NoTests,
	})
	if err != nil {
		t.Errorf("boundary: %v", err)
		return
	}
	for _, f := range report.Findings {
		t.Errorf("%s", f)
	}
	for _, w := range report.Waivers {
		t.Logf("%s: exception: %s", w.Position, w.Reason)
	}
	if n := len(report.Waivers); n > s.MaxWaivers {
		t.Errorf("boundary: %d exceptions, at most %d are allowed", n, s.MaxWaivers)
	}
	t.Logf("boundary: packages=%d findings=%d exceptions=%d", report.Packages, len(report.Findings), len(report.Waivers))
}
