package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the processes that the program starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-role" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func show(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := run(ctx, args, strings.NewReader(""), &out)
	t.Logf("\n%s", out.String())
	return out.String(), err
}

func wantRows(t *testing.T, out string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(out, " yes\n"); rows != 2*len(points())+2 || len(points()) < 12 {
		t.Fatalf("%d rows hold, want %d", rows, 2*len(points())+2)
	}
	died := map[string]bool{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); slices.Contains(points(), f[0]) {
			if f[1] != f[2] {
				t.Errorf("killed at %s: %s restarts after %s deaths", f[0], f[1], f[2])
			}
			died[f[0]] = died[f[0]] || f[2] == "2"
		}
	}
	if len(died) != len(points()) {
		t.Errorf("died twice at %d points of %d", len(died), len(points()))
	}
}

func TestHoweverOftenASaleDiesThereIsOneChargeOneSeatAndOneEvent(t *testing.T) {
	out, err := show(t, "-crash", "all")
	wantRows(t, out, err)
}

func TestTheSameHoldsOnTheStoreInMemory(t *testing.T) {
	out, err := show(t, "-crash", "all", "-store", "memory")
	wantRows(t, out, err)
}

// COORD_TEST_MONGODB_URI names a server; without it an embedded one that speaks the
// protocol is built and run.
func TestTheSameHoldsOnMongoDB(t *testing.T) {
	uri := os.Getenv("COORD_TEST_MONGODB_URI")
	if uri == "" {
		uri = ferretDB(t)
	}
	out, err := show(t, "-crash", "all", "-store", "mongodb", "-mongodb", uri)
	wantRows(t, out, err)
}

func ferretDB(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("building the embedded server takes minutes")
	}
	program := filepath.Join(t.TempDir(), "ferretdb")
	build := exec.Command("go", "build", "-o", program, "github.com/wrkbelt/coord/testkit/integration/cmd/ferretdb")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	server := exec.Command(program)
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_, _ = io.Copy(io.Discard, out)
		_ = server.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the embedded server does not start: %v", err)
	}
	return strings.TrimSpace(line)
}

// The table must be able to fail: a charge that is named by the lease's token is taken
// twice when the sale dies after it.
func TestTheTableShowsAMistake(t *testing.T) {
	for _, point := range []string{pointChargeSent, pointCharged, pointInFinish} {
		out, err := show(t, "-naive", "-crash", point)
		if err == nil || !strings.Contains(out, "NO: 2 charges") && !strings.Contains(out, "NO: 3 charges") {
			t.Errorf("killed at %s, the mistake went unseen: %v", point, err)
		}
	}
	if out, err := show(t, "-naive", "-crash", pointReconciled); err != nil || strings.Contains(out, "NO") {
		t.Errorf("killed before the charge, the mistake costs nothing: %v", err)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"-crash", "nowhere"}, {"-store", "paper"}, {"-store", "mongodb", "-mongodb", ""}} {
		if _, err := show(t, args...); err == nil {
			t.Errorf("%v were accepted", args)
		}
	}
	if out, err := show(t, "-list"); err != nil || strings.Count(out, "\n") != len(points()) {
		t.Errorf("%q, %v", out, err)
	}
}
