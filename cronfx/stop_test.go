package cronfx_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestStopOfARunnerThatNeverStartedAndTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("@every 1s", cronfx.Policies{}), nil)
		c.stop()
		c.start()
		if err := c.runners[0].Start(t.Context()); err == nil {
			t.Error("a second Start was accepted")
		}
		c.stop()
		c.stop()
		n := len(c.ledger.instants())
		time.Sleep(time.Minute)
		if len(c.ledger.instants()) != n {
			t.Error("a tick ran after Stop")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.runners[0].Start(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Start under an ended context: %v", err)
		}
	})
}

// kubernetes#23731 and cilium#42920: the gate is given up before the work ends.
func TestStopCancelsTheRunAndLeavesItTheRestOfTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		c := newCluster(t, 1, func(c *cluster) []cronfx.Definition {
			return []cronfx.Definition{cronfx.Job{Name: "job", Schedule: "@every 1m", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: func(ctx context.Context, _ cronfx.Tick) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				time.Sleep(10 * time.Second) // winding down
				if c.lease.Holder("cron-run:job") == "" {
					t.Error("the overlap lease was given up before the run ended")
				}
				return ctx.Err()
			}}}
		}, nil)
		c.start()
		time.Sleep(90 * time.Second)
		began := time.Now()
		c.stop()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("stop took %v, want the 10 s that the handler needs", took)
		}
		if !errors.Is(cause, cronfx.ErrStopped) {
			t.Errorf("cause %v, want ErrStopped", cause)
		}
		c.ledger.find(t, cronfx.OutcomeInterrupted)
		if h := c.lease.Holder("cron-run:job"); h != "" {
			t.Errorf("the overlap lease is still held by %s", h)
		}
	})
}

func TestStopReturnsWhenItsBudgetEndsAndNamesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := newCluster(t, 1, one(cronfx.Job{Name: "deaf", Schedule: "@every 1m", Run: func(context.Context, cronfx.Tick) error {
			<-release
			return nil
		}}), nil)
		c.start()
		time.Sleep(61 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := c.runners[0].Stop(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "deaf") {
			t.Errorf("got %v, want a deadline error that names the job", err)
		}
		close(release)
		synctest.Wait()
		c.ledger.find(t, cronfx.OutcomeCompleted)
	})
}

// A stop that comes while the gate is asked neither runs the tick nor keeps it from a
// replica that starts in time.
func TestAStopDuringTheClaimGivesTheTickBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, counting("@every 1m", cronfx.Policies{}), nil)
		time.Sleep(time.Second)
		heal := c.lock.Inject(testkit.FaultHang)
		if err := c.runners[0].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := c.runners[0].Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		heal()
		c.ledger.find(t, cronfx.OutcomeInterrupted)
		if err := c.runners[1].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantTimes(t, c.ledger.instants(), "2000-01-01T00:00:00Z")
		c.stop()
	})
}

func TestAHundredStartStopCyclesUnderLoad(t *testing.T) {
	// On the real clock; TestMain looks for leaked goroutines.
	var ran atomic.Int64
	lock, lease := testkit.NewLockBackend(nil), testkit.NewLeaseBackend(nil)
	var jobs []cronfx.Definition
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		jobs = append(jobs, cronfx.Job{Name: name, Schedule: "@every 1ms", Policies: cronfx.Policies{Overlap: cronfx.OverlapAllow, Crash: cronfx.CrashTakeOver}, Run: func(ctx context.Context, _ cronfx.Tick) error {
			ran.Add(1)
			return ctx.Err()
		}})
	}
	r, err := cronfx.NewRunner(cronfx.Params{Lock: lock.Client("a"), Lease: lease.Client(), InstanceID: "a", Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		before := ran.Load()
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(30 * time.Second)
		for ran.Load() == before && time.Now().Before(deadline) {
			_ = r.Jobs()
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := ran.Load()
		if after == before {
			t.Fatal("nothing ran")
		}
		for _, s := range r.Jobs() {
			if s.Running != 0 {
				t.Fatalf("%s still runs after Stop", s.Name)
			}
		}
	}
}

// lateAnswer is a lock whose answers arrive only once answer is closed.
type lateAnswer struct {
	semantic.DistributedLock
	answer chan struct{}
}

func (l lateAnswer) Acquire(_ context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
	claim, err := l.DistributedLock.Acquire(context.Background(), key, ttl, opts...)
	<-l.answer
	return claim, err
}

// The same when the claim was granted, but the answer came after the stop.
func TestAClaimGrantedAfterTheStopIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		c := newCluster(t, 2, counting("@every 1m", cronfx.Policies{}), func(i int, p *cronfx.Params) {
			if i == 0 {
				p.Lock = lateAnswer{p.Lock, answer}
			}
		})
		time.Sleep(time.Second)
		if err := c.runners[0].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		go func() {
			time.Sleep(time.Second)
			close(answer)
		}()
		if err := c.runners[0].Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.ledger.find(t, cronfx.OutcomeInterrupted)
		if err := c.runners[1].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantTimes(t, c.ledger.instants(), "2000-01-01T00:00:00Z")
		c.stop()
	})
}
