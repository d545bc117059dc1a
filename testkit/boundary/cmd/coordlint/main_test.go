package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tool is the built command.
func tool(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "coordlint")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// in runs a program in the test data's module and returns its output and exit code.
func in(t *testing.T, program string, args ...string) (output string, code int) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = "../../testdata/app"
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=vendor -buildvcs=false")
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

var position = regexp.MustCompile(`(?m)([a-z0-9_]+/[a-z0-9_]+\.go:\d+):\d+: `)

// positions are the directory, file and line of each line of output that has them.
func positions(output string) []string {
	var all []string
	for _, m := range position.FindAllStringSubmatch(output, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestCommandReportsAndSaysSoByItsExitCode(t *testing.T) {
	bin := tool(t)
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"violations", []string{"./escapes/alias"}, 1, "coordlint: packages=1 findings=3 exceptions=0\n"},
		{"exceptions", []string{"./clean/waived"}, 0, "file.go:1:1: exception: this file is the flush tool's\n"},
		{"count of exceptions", []string{"./clean/waived"}, 0, "coordlint: packages=1 findings=0 exceptions=4\n"},
		{"as many as allowed", []string{"-waivers=4", "./clean/waived"}, 0, "exceptions=4\n"},
		{"one too many", []string{"-waivers=3", "./clean/waived"}, 1, "at most 3 exceptions are allowed\n"},
		{"an allowed package", []string{"-allow=example.com/app/escapes", "./escapes/alias"}, 0, "findings=0"},
		{"a raw package of one's own", []string{"-raw=example.com/app/clean/redis", "./clean/service"}, 1, "field leads to the raw example.com/app/clean/redis.Client"},
		{"a build tag", []string{"-tags=admin", "./escapes/build_tag"}, 1, "import of the raw client"},
		{"without its build tag", []string{"./escapes/build_tag"}, 0, "findings=0"},
		{"test files", []string{"./escapes/test_file"}, 1, "escape_test.go:6:2: import"},
		{"without test files", []string{"-test=false", "./escapes/test_file"}, 0, "findings=0"},
		{"no such package", []string{"./nowhere"}, 2, "nowhere"},
		{"no such flag", []string{"-nothing"}, 2, "usage: coordlint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, code := in(t, bin, c.args...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("coordlint %v: exit code %d, want %d with %q in\n%s", c.args, code, c.code, c.want, out)
			}
		})
	}
}

func TestVetReportsWhatTheCommandReports(t *testing.T) {
	bin := tool(t)
	command, code := in(t, bin, "-tags=admin", "./...")
	if code != 1 {
		t.Fatalf("exit code %d\n%s", code, command)
	}
	vet, code := in(t, "go", "vet", "-vettool="+bin, "-tags=admin", "./...")
	if code == 0 {
		t.Errorf("go vet passes\n%s", vet)
	}
	var findings bytes.Buffer
	for line := range strings.Lines(command) {
		if !strings.Contains(line, ": exception: ") {
			findings.WriteString(line)
		}
	}
	byCommand, byVet := positions(findings.String()), positions(vet)
	if len(byCommand) < 80 || !slices.Equal(byCommand, byVet) {
		t.Errorf("the command reports %d lines, vet %d:\n%s\n%s", len(byCommand), len(byVet), fmt.Sprint(byCommand), fmt.Sprint(byVet))
	}

	if out, code := in(t, "go", "vet", "-vettool="+bin, "./clean/..."); code != 0 {
		t.Errorf("go vet reports innocent code:\n%s", out)
	}
	if out, code := in(t, "go", "vet", "-vettool="+bin, "-boundary.allow=example.com/app/escapes", "./escapes/alias"); code != 0 {
		t.Errorf("go vet does not pass the flag on:\n%s", out)
	}
}
