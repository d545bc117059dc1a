package testkit

import (
	"os"
	"os/exec"
	"testing"
)

// RequireProgram returns the path of a program on PATH. Without it the test is
// skipped with a message that says how to install it, and fails where CI=true: there
// a missing server must not pass for a tested one.
func RequireProgram(t testing.TB, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not on PATH and CI=true: install it (%s)", name, install)
	}
	t.Skipf("NOT TESTED: %s is not on PATH; install it (%s) or run `make setup`", name, install)
	return ""
}

const (
	redisProgram = "redis-server"
	redisInstall = "apt-get install redis-server, brew install redis, or https://redis.io/downloads"
)
