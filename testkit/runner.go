package testkit

import (
	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
)

// RunnerBackend is what the cron runners of several replicas share: one lock, one
// lease and one queue, in memory. The runners are real. Safe for concurrent use.
//
// Two ways to drive them: in a testing/synctest bubble with a nil clock, where ticks,
// runs and waits happen in virtual time by themselves; or with a [Clock] that the test
// moves: it waits at each tick for the runs that need no more than a second of real
// time, one replica after the other. A run that waits for such a clock itself is left
// behind, and may be found still running by the next tick.
type RunnerBackend struct {
	Lock   *LockBackend
	Lease  *LeaseBackend
	Fanout *FanoutBackend

	clock semantic.Clock
}

// NewRunnerBackend returns a backend that remembers nothing; a nil clock is the
// system's.
func NewRunnerBackend(clock semantic.Clock) *RunnerBackend {
	return &RunnerBackend{
		Lock: NewLockBackend(clock), Lease: NewLeaseBackend(clock), Fanout: NewFanoutBackend(clock),
		clock: clock,
	}
}

// Runner returns the runner of one more replica. It is not started.
func (b *RunnerBackend) Runner(instanceID string, jobs ...cronfx.Definition) (*cronfx.Runner, error) {
	return cronfx.NewRunner(b.Params(instanceID, jobs...))
}

// Params are those of [RunnerBackend.Runner], for a test that changes some.
func (b *RunnerBackend) Params(instanceID string, jobs ...cronfx.Definition) cronfx.Params {
	return cronfx.Params{
		Lock: b.Lock.Client(instanceID), Lease: b.Lease.Client(), InstanceID: instanceID,
		Fanout: func() (semantic.Fanout, error) { return b.Fanout.Client(), nil },
		Clock:  b.clock, Jobs: jobs,
	}
}

// NewRunner returns the only runner of a backend of its own, called "test"; a nil
// clock is the system's.
func NewRunner(clock semantic.Clock, jobs ...cronfx.Definition) (*cronfx.Runner, error) {
	return NewRunnerBackend(clock).Runner("test", jobs...)
}
