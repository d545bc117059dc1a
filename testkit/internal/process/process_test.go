package process

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program returns a program of the system, or skips.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s on this system", name)
	}
	return path
}

func TestAChildRunsWithItsOutputAndEnvironment(t *testing.T) {
	var out bytes.Buffer
	p, err := Start(Spec{Path: program(t, "sh"), Args: []string{"-c", `echo "$GREETING"; exit 3`}, Env: []string{"GREETING=hello"}, Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.ExitCode() != 3 || out.String() != "hello\n" {
		t.Errorf("ended with %v, output %q", p.Err(), out.String())
	}
	p.Kill() // after the end: fine
}

func TestAChildIsKilledPausedOrNot(t *testing.T) {
	for _, pause := range []bool{false, true} {
		p, err := Start(Spec{Path: program(t, "sleep"), Args: []string{"1000"}})
		if err != nil {
			t.Fatal(err)
		}
		if p.Err() != nil {
			t.Error("a running child has an end")
		}
		if pause {
			if err := p.Pause(); err != nil {
				t.Fatal(err)
			}
		}
		p.Kill()
		if alive, _ := os.FindProcess(p.PID()); alive.Signal(syscall.Signal(0)) == nil {
			t.Errorf("paused %v: the child lives", pause)
		}
	}
}

func TestTerminateKillsWhatDoesNotListen(t *testing.T) {
	p, err := Start(Spec{Path: program(t, "sh"), Args: []string{"-c", `trap "" INT; while :; do sleep 0.01; done`}})
	if err != nil {
		t.Fatal(err)
	}
	p.Terminate(50 * time.Millisecond)
	if p.Err() == nil {
		t.Error("the child lives")
	}
}

func TestAMissingProgramIsAnError(t *testing.T) {
	if _, err := Start(Spec{Path: "/no/such/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestAReservedPortRefusesUntilSomebodyListens(t *testing.T) {
	p, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	for range 3 {
		if _, err := net.Dial("tcp", p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial of a reserved port: %v", err)
		}
		l, err := net.Listen("tcp", p.Address())
		if err != nil {
			t.Fatalf("listen on a reserved port: %v", err)
		}
		c, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
}

func TestAReservedPortIsNotGivenToOthers(t *testing.T) {
	reserved := map[int]bool{}
	for range 50 {
		p, err := ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		reserved[p.Number()] = true
	}
	if len(reserved) != 50 {
		t.Fatalf("%d ports for 50 reservations", len(reserved))
	}
	for range 500 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if reserved[l.Addr().(*net.TCPAddr).Port] {
			t.Errorf("port %v was reserved", l.Addr())
		}
		l.Close()
	}
}
