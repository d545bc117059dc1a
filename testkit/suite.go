package testkit

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// T is the part of *testing.T that the conformance suites use, so that the suites
// themselves can be tested.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

// Backend tells a conformance suite how to make and drive one implementation S of a
// contract.
type Backend[S any] struct {
	// New makes n independent clients of one backend that holds nothing yet, as n
	// replicas of a service would have them, and closes them with t.Cleanup.
	New func(t T, n int) []S
	// Advance lets d pass by the backend's and the clients' clocks: a controllable
	// clock moves, a real backend sleeps. Suites ask real backends for short spans.
	Advance func(d time.Duration)
	// Fault makes something go wrong for the clients of the latest New until heal is
	// called. It is nil where nothing can be injected; the cases that need it are
	// then reported as not run.
	Fault func(t T, f Fault) (heal func())
	// Lacks are the capabilities that this backend has not, beside those that the
	// fields above tell of; the cases that need them are reported as not run.
	Lacks []Need
}

// Fault is something that goes wrong between a client and its backend.
type Fault string

const (
	// FaultDown: the backend cannot be reached; nothing is applied.
	FaultDown Fault = "DOWN"
	// FaultLoseReply: the next request is applied and its reply is lost.
	FaultLoseReply Fault = "LOSE_REPLY"
	// FaultLoseReplies: every request is applied and its reply is lost.
	FaultLoseReplies Fault = "LOSE_REPLIES"
	// FaultHang: requests are neither applied nor answered.
	FaultHang Fault = "HANG"
)

// Case is one promise of a contract as a test.
type Case[S any] struct {
	Name  string // the promise, as a short sentence
	Needs Need   // what the backend must be able to do
	Run   func(t T, b Backend[S])
}

// Need is a capability of a [Backend].
type Need string

const (
	// NeedNothing: the case runs on every backend.
	NeedNothing Need = ""
	// NeedFaults: the case injects faults.
	NeedFaults Need = "fault injection"
	// NeedStillClock: the case needs a backend whose clock moves only with Advance,
	// to the millisecond.
	NeedStillClock Need = "a clock that stands still"
	// NeedAtomicUpdate: the case races updates of one record.
	NeedAtomicUpdate Need = "atomic updates"
)

// runCases runs every case as a subtest. What a backend cannot do is said in the log.
func runCases[S any](t *testing.T, b Backend[S], cases []Case[S]) {
	t.Helper()
	for _, c := range cases {
		if (c.Needs == NeedFaults && b.Fault == nil) || (c.Needs != NeedNothing && slices.Contains(b.Lacks, c.Needs)) {
			t.Logf("not run: %q needs %s, which this backend has not", c.Name, c.Needs)
			continue
		}
		t.Run(c.Name, func(t *testing.T) { c.Run(t, b) })
	}
}

// Failures runs one case outside the testing package and returns what it reported,
// nothing if it passed. It is how a suite is shown to catch a broken implementation.
func Failures[S any](c Case[S], b Backend[S]) []string {
	r := &recorder{name: c.Name}
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = ctx
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		c.Run(r, b)
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		r.Errorf("case did not end within 30 s")
	}
	cancel()
	r.cleanup()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

// recorder is a T that keeps failures.
type recorder struct {
	name string
	ctx  context.Context

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Name() string             { return r.name }
func (r *recorder) Logf(string, ...any)      {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) cleanup() {
	for {
		r.mu.Lock()
		if len(r.cleanups) == 0 {
			r.mu.Unlock()
			return
		}
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		r.mu.Unlock()
		last()
	}
}
