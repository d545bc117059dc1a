package cronfx_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/testkit"
)

// With replicas that start, die and come back at random, under clocks that step, no
// tick starts twice (at most one start per tick in the default mode), and almost every
// tick is run by someone.
func TestRandomDeathsAndClockStepsStartNoTickTwice(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		backend, l := testkit.NewRunnerBackend(nil), &ledger{}
		type replica struct {
			runner *cronfx.Runner
			lock   *testkit.DistributedLock
			lease  *testkit.ResourceLease
			clock  *skewed
		}
		born := 0
		birth := func() *replica {
			born++
			r := &replica{clock: &skewed{}}
			r.clock.step(time.Duration(rng.IntN(4000)-2000) * time.Millisecond)
			p := backend.Params(fmt.Sprint("replica-", born), cronfx.Job{
				Name: "job", Schedule: "@every 10s", Policies: cronfx.Policies{LeaseTTL: 5 * time.Second, Jitter: time.Second},
				Run: func(ctx context.Context, tick cronfx.Tick) error {
					_ = l.run(ctx, tick)
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
					}
					return ctx.Err()
				},
			})
			r.lock, r.lease = p.Lock.(*testkit.DistributedLock), p.Lease.(*testkit.ResourceLease)
			p.Clock, p.OnRun = r.clock, l.record
			var err error
			if r.runner, err = cronfx.NewRunner(p); err != nil {
				t.Fatal(err)
			}
			if err := r.runner.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r
		}
		stop := func(r *replica) {
			if err := r.runner.Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		replicas := []*replica{birth(), birth(), birth(), birth(), birth()}
		const ticks = 600
		for range ticks * 2 {
			time.Sleep(5 * time.Second)
			i := rng.IntN(len(replicas))
			switch rng.IntN(6) {
			case 0: // killed: nothing of it reaches the backend any more
				replicas[i].lock.Close()
				replicas[i].lease.Close()
				stop(replicas[i])
				replicas[i] = birth()
			case 1: // deployed
				stop(replicas[i])
				replicas[i] = birth()
			case 2:
				replicas[i].clock.step(time.Duration(rng.IntN(40_000)-20_000) * time.Millisecond)
			case 3:
				heal := backend.Lock.Inject(testkit.FaultLoseReplies)
				time.AfterFunc(time.Second, heal)
			}
		}
		for _, r := range replicas {
			stop(r)
		}
		starts := map[time.Time]int{}
		for _, at := range l.instants() {
			if starts[at]++; starts[at] > 1 {
				t.Errorf("seed %d: tick %v started %d times", seed, at, starts[at])
			}
		}
		if len(starts) < ticks*8/10 {
			t.Errorf("seed %d: only %d of %d ticks were run", seed, len(starts), ticks)
		}
	})
}
