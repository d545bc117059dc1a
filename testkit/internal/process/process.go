package process

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Spec says what to run.
type Spec struct {
	Path   string    // the program
	Args   []string  // without the program's name
	Dir    string    // working directory
	Env    []string  // added to this process's environment
	Output io.Writer // standard output and error; nil discards them
}

// Process is a running child. Its methods may be called at any time, after its end
// too, and from any goroutine.
type Process struct {
	child  *os.Process
	exited chan struct{}
	err    error // set before exited is closed
}

// Start runs the program. On Linux the child is killed when this process dies.
func Start(spec Spec) (*Process, error) {
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = spec.Dir, spec.Output, spec.Output
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.SysProcAttr = dieWithParent()
	cmd.WaitDelay = time.Second // for grandchildren that keep the output open

	p := &Process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// "Parent" means the thread that started the child, so it must live on.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.child = cmd.Process
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	return p, nil
}

// PID returns the child's process id.
func (p *Process) PID() int { return p.child.Pid }

// Exited is closed when the child has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err tells how an ended child ended; nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.exited:
		return p.err
	default:
		return nil
	}
}

// Kill ends the child at once and waits for its end.
func (p *Process) Kill() {
	_ = p.child.Kill() // an error means that it has ended
	<-p.exited
}

// Terminate asks the child to end, and kills it when it has not within the grace.
func (p *Process) Terminate(grace time.Duration) {
	_ = p.child.Signal(os.Interrupt)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.Kill()
	}
}

// Pause stops the child where it stands; its connections stay open and silent.
func (p *Process) Pause() error { return pause(p.child) }

// Resume lets a paused child go on.
func (p *Process) Resume() error { return resume(p.child) }
