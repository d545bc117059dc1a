package boundarytest

import (
	"os"
	"strings"
	"testing"
)

func settings() Settings {
	return Settings{Dir: "../testdata/app", Env: append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=vendor -buildvcs=false")}
}

func TestRunFailsForEachFinding(t *testing.T) {
	r := &recorder{}
	RunWith(r, settings(), "./escapes/alias")
	if len(r.errors) != 3 || !strings.Contains(r.errors[1], "alias Store leads to the raw github.com/redis/go-redis/v9.Client") {
		t.Errorf("errors = %q", r.errors)
	}
}

func TestRunCountsExceptions(t *testing.T) {
	r := &recorder{}
	RunWith(r, settings(), "./clean/waived")
	r.said(t, "4 exceptions, at most 0 are allowed")
	r, s := &recorder{}, settings()
	s.MaxWaivers = 4
	RunWith(r, s, "./clean/...")
	r.said(t, "")
	if logs := strings.Join(r.logs, "\n"); !strings.Contains(logs, "exception: this file is the flush tool's") ||
		!strings.Contains(logs, "findings=0 exceptions=4") {
		t.Errorf("logs = %q", logs)
	}
}

func TestRunDoesNotPassWhatItCannotLoad(t *testing.T) {
	for _, pattern := range []string{"./nowhere", "./clean/nowhere/...", "example.com/other"} {
		r := &recorder{}
		RunWith(r, settings(), pattern)
		if len(r.errors) == 0 {
			t.Errorf("%s passes", pattern)
		}
	}
	r := &recorder{} // without its vendor directory the test data does not compile
	RunWith(r, Settings{Dir: "../testdata/app", Env: append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")}, "./clean/service")
	if len(r.errors) == 0 {
		t.Error("packages that do not compile pass")
	}
}
