package cronfx_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/testkit"
)

// attempts are the runs of a job under CrashTakeOver, as replica and attempt.
type attempts struct {
	*ledger
	behave func(ctx context.Context, attempt int) error
}

func (a *attempts) jobs(overlap cronfx.Overlap) func(*cluster) []cronfx.Definition {
	return func(c *cluster) []cronfx.Definition {
		a.ledger = c.ledger
		return []cronfx.Definition{cronfx.Job{
			Name: "job", Schedule: "0 * * * *",
			Policies: cronfx.Policies{Crash: cronfx.CrashTakeOver, Overlap: overlap, Misfire: cronfx.MisfireSkip},
			Run: func(ctx context.Context, t cronfx.Tick) error {
				_ = c.ledger.run(ctx, t)
				return a.behave(ctx, t.Attempt)
			},
		}}
	}
}

func (a *attempts) numbers() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []int
	for _, t := range a.ticks {
		out = append(out, t.Attempt)
	}
	return out
}

// cutOff makes whichever replica runs the job unreachable for good.
func cutOff(c *cluster, locks []*testkit.DistributedLock, leases []*testkit.ResourceLease) {
	for i, r := range c.runners {
		if r.Jobs()[0].Running > 0 {
			locks[i].Close()
			leases[i].Close()
		}
	}
}

func TestTakeOver(t *testing.T) {
	untilCancelled := func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, c := range []struct {
		promise string
		overlap cronfx.Overlap
		behave  func(ctx context.Context, attempt int) error
		kill    int // how many runs lose their replica
		want    []int
	}{
		{"a run that completes is not run again", cronfx.OverlapSkip, func(context.Context, int) error { return nil }, 0, []int{1}},
		{"a run that fails is not run again", cronfx.OverlapSkip, func(context.Context, int) error { return errBoom }, 0, []int{1}},
		{"a run that panics is not run again", cronfx.OverlapAllow, func(context.Context, int) error { panic("boom") }, 0, []int{1}},
		{"a long run is left alone", cronfx.OverlapSkip, func(ctx context.Context, _ int) error {
			select {
			case <-time.After(40 * time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, 0, []int{1}},
		{"a run whose replica died is run by another", cronfx.OverlapSkip, func(ctx context.Context, attempt int) error {
			if attempt == 1 {
				return untilCancelled(ctx, attempt)
			}
			return nil
		}, 1, []int{1, 2}},
		{"also where overlap is allowed", cronfx.OverlapAllow, func(ctx context.Context, attempt int) error {
			if attempt == 1 {
				return untilCancelled(ctx, attempt)
			}
			return nil
		}, 1, []int{1, 2}},
		{"a run that kills every replica is given up after three", cronfx.OverlapSkip, untilCancelled, 4, []int{1, 2, 3}},
	} {
		t.Run(c.promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &attempts{behave: c.behave}
				var locks []*testkit.DistributedLock
				var leases []*testkit.ResourceLease
				cl := newCluster(t, 5, a.jobs(c.overlap), func(_ int, p *cronfx.Params) {
					locks, leases = append(locks, p.Lock.(*testkit.DistributedLock)), append(leases, p.Lease.(*testkit.ResourceLease))
				})
				cl.start()
				time.Sleep(time.Hour)
				for k := range c.kill {
					synctest.Wait()
					if len(a.numbers()) != min(k+1, 3) {
						t.Fatalf("attempts %v before kill %d", a.numbers(), k+1)
					}
					cutOff(cl, locks, leases)
					time.Sleep(2 * time.Minute)
				}
				time.Sleep(50 * time.Minute)
				if got := a.numbers(); !slices.Equal(got, c.want) {
					t.Errorf("attempts %v, want %v", got, c.want)
				}
				cl.stop()
			})
		})
	}
}

// A rolling deploy does not lose a long run: the stop cuts it short and another
// replica runs it again.
func TestARunCutShortByAStopIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &attempts{behave: func(ctx context.Context, attempt int) error {
			select {
			case <-time.After(10 * time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		c := newCluster(t, 2, a.jobs(cronfx.OverlapSkip), nil)
		c.start()
		time.Sleep(time.Hour + time.Minute)
		for _, r := range c.runners {
			if r.Jobs()[0].Running > 0 {
				if err := r.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		time.Sleep(20 * time.Minute)
		if got := a.numbers(); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("attempts %v, want 1 and 2", got)
		}
		if r := c.ledger.find(t, cronfx.OutcomeCompleted); r.Attempt != 2 {
			t.Errorf("completed in attempt %d, want 2", r.Attempt)
		}
		c.stop()
	})
}

// By default a tick starts at most once, whatever becomes of its replica.
func TestWithoutTakeOverATickStartsAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(c *cluster) []cronfx.Definition {
			return []cronfx.Definition{cronfx.Job{Name: "job", Schedule: "0 * * * *", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: func(ctx context.Context, tick cronfx.Tick) error {
				_ = c.ledger.run(ctx, tick)
				<-ctx.Done()
				return ctx.Err()
			}}}
		}, nil)
		c.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		c.lease.Inject(testkit.FaultDown)
		c.lock.Inject(testkit.FaultDown)
		time.Sleep(59 * time.Minute)
		wantTimes(t, c.ledger.instants(), "2000-01-01T01:00:00Z")
		c.stop()
	})
}

// A tick that was skipped for overlap was decided: nobody makes up for it.
func TestASkippedTickIsNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &attempts{behave: func(context.Context, int) error { return nil }}
		c := newCluster(t, 3, a.jobs(cronfx.OverlapSkip), nil)
		if ok, err := c.lease.Client().Claim(t.Context(), "cron-run:job", "a manual run", time.Hour+time.Minute); !ok {
			t.Fatal(err)
		}
		c.start()
		time.Sleep(time.Hour + 50*time.Minute)
		if got := a.numbers(); len(got) != 0 {
			t.Errorf("attempts %v, want none", got)
		}
		if n := c.ledger.count(cronfx.OutcomeSkippedOverlap); n != 1 {
			t.Errorf("%d records of overlap, want 1", n)
		}
		c.stop()
	})
}
