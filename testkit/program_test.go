package testkit_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/wrkbelt/coord/testkit"
)

// verdict is a testing.TB that keeps how a test ended.
type verdict struct {
	testing.TB
	ended string
}

func (v *verdict) Helper() {}

func (v *verdict) Fatalf(format string, args ...any) {
	v.ended = "failed: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (v *verdict) Skipf(format string, args ...any) {
	v.ended = "skipped: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestAMissingProgramSkipsAtHomeAndFailsInCI(t *testing.T) {
	for _, c := range []struct{ ci, want string }{{"", "skipped: "}, {"false", "skipped: "}, {"true", "failed: "}} {
		t.Setenv("CI", c.ci)
		v := &verdict{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			testkit.RequireProgram(v, "no-such-server", "make no-such-server")
		}()
		<-done
		if !strings.HasPrefix(v.ended, c.want) || !strings.Contains(v.ended, "make no-such-server") {
			t.Errorf("CI=%q: %q, want %q and how to install it", c.ci, v.ended, c.want)
		}
	}
}
