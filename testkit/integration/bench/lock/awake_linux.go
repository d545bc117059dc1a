package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// spinning is set in the environment of the process that keeps the processors awake.
const spinning = "COORD_BENCH_SPINNING"

// keepAwake keeps the processors from sleeping until stop is called: a virtual machine may
// need longer to wake one than the server needs for a lock, and then one caller measures
// that. A process of the idle class uses what nobody else wants, and is preempted at once.
func keepAwake(ctx context.Context) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	spinner := exec.CommandContext(ctx, self)
	spinner.Env = append(os.Environ(), spinning+"=1")
	spinner.Stderr = os.Stderr
	spinner.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ready, err := spinner.StdoutPipe()
	if err == nil {
		err = spinner.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	stop = func() {
		cancel()
		_ = spinner.Wait()
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		stop()
		return nil, fmt.Errorf("nothing keeps the processors awake: %w", err)
	}
	return stop, nil
}

// spinIfAsked is the work of that process. It does not return there.
func spinIfAsked() {
	if os.Getenv(spinning) == "" {
		return
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		fail(err)
	}
	ready := make(chan struct{})
	n := allowed.Count()
	runtime.GOMAXPROCS(n + 1)
	for cpu, left := 0, n; left > 0; cpu++ {
		if allowed.IsSet(cpu) {
			left--
			go spin(cpu, ready)
		}
	}
	for range n {
		<-ready
	}
	fmt.Println("spinning")
	select {}
}

func spin(cpu int, ready chan<- struct{}) {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		fail(err)
	}
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		fail(err)
	}
	ready <- struct{}{}
	for { //nolint:staticcheck // it is to spin
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench lock: keeping the processors awake:", err)
	os.Exit(1)
}
