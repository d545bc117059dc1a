package operationstore

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/wrkbelt/coord/testkit"
)

// steppedServer is a real redis-server whose own clock the test steps: what TIME tells,
// and when keys expire.
type steppedServer struct {
	*testkit.RedisServer
	t    *testing.T
	file *os.File
	off  time.Duration
}

// startSteppedServer preloads testdata/stepclock.c. It needs Linux and the C compiler
// that the race detector needs as well.
func startSteppedServer(t *testing.T) *steppedServer {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skipf("not run: the server's clock is stepped by LD_PRELOAD, which %s has not", runtime.GOOS)
	}
	testkit.RequireProgram(t, "cc", "apt-get install gcc libc6-dev")
	dir := t.TempDir()
	library := filepath.Join(dir, "stepclock.so")
	if out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", library, "testdata/stepclock.c").CombinedOutput(); err != nil {
		t.Fatalf("compile the clock: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "step"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	s := &steppedServer{t: t, file: file}
	s.step(0)
	t.Setenv("LD_PRELOAD", library)
	t.Setenv("COORD_CLOCK_STEP", file.Name())
	s.RedisServer = testkit.StartRedis(t)
	for _, d := range []time.Duration{time.Minute, -2 * time.Minute, time.Minute} {
		before := s.now()
		s.step(d)
		if moved := s.now().Sub(before); (moved - d).Abs() > 10*time.Second {
			t.Fatalf("stepped by %v, the server's clock moved by %v", d, moved)
		}
	}
	return s
}

// step moves the server's clock by d, at once.
func (s *steppedServer) step(d time.Duration) {
	s.t.Helper()
	s.off += d
	if _, err := s.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(s.off.Milliseconds())), 0); err != nil {
		s.t.Fatal(err)
	}
}

// now is the server's time.
func (s *steppedServer) now() time.Time {
	s.t.Helper()
	var seconds, micros int64
	if _, err := fmt.Sscan(fmt.Sprintln(s.Must("TIME").([]any)...), &seconds, &micros); err != nil {
		s.t.Fatal(err)
	}
	return time.Unix(seconds, micros*1000)
}
