package cronfx_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
)

// slow is a job whose run lasts as long as took says, and which knows how many of its
// runs are at work.
type slow struct {
	spec     string
	took     time.Duration
	policies cronfx.Policies

	mu        sync.Mutex
	now, most int
}

func (s *slow) jobs(c *cluster) []cronfx.Definition {
	return []cronfx.Definition{cronfx.Job{Name: "slow", Schedule: s.spec, Policies: s.policies, Run: func(ctx context.Context, tick cronfx.Tick) error {
		_ = c.ledger.run(ctx, tick)
		s.mu.Lock()
		s.now++
		s.most = max(s.most, s.now)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.now--
			s.mu.Unlock()
		}()
		select {
		case <-time.After(s.took):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}}
}

func (s *slow) sideBySide() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// quartznet#1758: a long job also starts on another node.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		overlap cronfx.Overlap
		took    time.Duration
		want    []string // of the first five minutes
		most    int
		skipped int
	}{
		{
			cronfx.OverlapSkip, 90 * time.Second,
			[]string{"2000-01-01T00:01:00Z", "2000-01-01T00:03:00Z", "2000-01-01T00:05:00Z"}, 1, 2,
		},
		{
			cronfx.OverlapAllow, 90 * time.Second,
			[]string{"2000-01-01T00:01:00Z", "2000-01-01T00:02:00Z", "2000-01-01T00:03:00Z", "2000-01-01T00:04:00Z", "2000-01-01T00:05:00Z"}, 2, 0,
		},
		{ // the tick of 00:02 waits for that of 00:01, and so on
			cronfx.OverlapDelay, 75 * time.Second,
			[]string{"2000-01-01T00:01:00Z", "2000-01-01T00:02:00Z", "2000-01-01T00:03:00Z", "2000-01-01T00:04:00Z"}, 1, 0,
		},
		{ // longer than two intervals: only the newest waits
			cronfx.OverlapDelay, 150 * time.Second,
			[]string{"2000-01-01T00:01:00Z", "2000-01-01T00:03:00Z"}, 1, 2,
		},
	} {
		t.Run(string(c.overlap)+" "+c.took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slow{spec: "* * * * *", took: c.took, policies: cronfx.Policies{Overlap: c.overlap, Misfire: cronfx.MisfireSkip}}
				cl := newCluster(t, 3, s.jobs, nil)
				cl.start()
				time.Sleep(5*time.Minute + 30*time.Second)
				wantTimes(t, cl.ledger.instants(), c.want...)
				if most := s.sideBySide(); most != c.most {
					t.Errorf("%d runs side by side, want %d", most, c.most)
				}
				if n := cl.ledger.count(cronfx.OutcomeSkippedOverlap); n != c.skipped {
					t.Errorf("%d ticks skipped for overlap, want %d", n, c.skipped)
				}
				if s := cl.signals("cron.tick.skipped"); len(s) != c.skipped || c.skipped > 0 && s[0] != "OVERLAP" {
					t.Errorf("signals %v, want %d × OVERLAP", s, c.skipped)
				}
				cl.stop()
			})
		})
	}
}

// laravel#36964 and #41310 ask which lock it was: the record of a skip names it. Two runs on one
// replica overlap as well: its lease is not refreshed by its own next tick.
func TestOverlapOnOneReplicaIsSeenAndNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{spec: "* * * * *", took: 90 * time.Second, policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}}
		c := newCluster(t, 1, s.jobs, nil)
		c.start()
		time.Sleep(2*time.Minute + time.Second)
		r := c.ledger.find(t, cronfx.OutcomeSkippedOverlap)
		if want := "replica-0@2000-01-01T00:01:00Z"; !strings.Contains(r.SkipReason, want) || c.lease.Holder("cron-run:slow") != want {
			t.Errorf("reason %q, lease holder %q, want both to name %q", r.SkipReason, c.lease.Holder("cron-run:slow"), want)
		}
		if st := c.runners[0].Jobs()[0]; st.Running != 1 || st.Last == nil || st.Last.Outcome != cronfx.OutcomeSkippedOverlap {
			t.Errorf("status %+v, want one running and a skip as its latest record", st)
		}
		c.stop()
		if h := c.lease.Holder("cron-run:slow"); h != "" {
			t.Errorf("lease is still held by %s after the stop", h)
		}
	})
}

// ShedLock#1587, gocron#799, laravel PR#40135: a crashed run blocks for hours. The
// lease of a run that crashed lapses within its ttl, and the next tick runs.
func TestACrashedRunBlocksForNoLongerThanItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("* * * * *", cronfx.Policies{Misfire: cronfx.MisfireSkip}), nil)
		if ok, err := c.lease.Client().Claim(t.Context(), "cron-run:job", "a dead replica", 90*time.Second); !ok || err != nil {
			t.Fatal(ok, err)
		}
		c.start()
		time.Sleep(2*time.Minute + time.Second)
		wantTimes(t, c.ledger.instants(), "2000-01-01T00:02:00Z")
		c.stop()
	})
}

// A lease that cannot be renewed cancels the run before another can begin.
func TestALostLeaseCancelsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{spec: "0 * * * *", took: time.Hour, policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}}
		c := newCluster(t, 1, s.jobs, nil)
		c.start()
		time.Sleep(time.Hour + time.Minute)
		if ok, err := c.lease.Client().TakeOver(t.Context(), "cron-run:slow", "an operator", time.Hour); ok == "" || err != nil {
			t.Fatal(ok, err)
		}
		time.Sleep(30 * time.Second)
		if r := c.ledger.find(t, cronfx.OutcomeFailed); !errors.Is(r.Err, semantic.ErrLeaseLost) {
			t.Errorf("error %v, want ErrLeaseLost", r.Err)
		}
		c.stop()
	})
}

func TestMisfire(t *testing.T) {
	for _, c := range []struct {
		promise  string
		policies cronfx.Policies
		pause    time.Duration // the clock jumps by it at 00:00:40, after the start at 00:00:00
		want     []string      // of what ran until 00:02:10 and pause
		missed   bool
	}{
		{
			"skip runs no late tick", cronfx.Policies{Misfire: cronfx.MisfireSkip, LateWindow: time.Hour}, 5*time.Minute + 30*time.Second,
			[]string{"2000-01-01T00:07:00Z"}, true,
		},
		{
			"latest runs one", cronfx.Policies{Misfire: cronfx.MisfireLatest, LateWindow: time.Hour}, 5*time.Minute + 30*time.Second,
			[]string{"2000-01-01T00:06:00Z", "2000-01-01T00:07:00Z"}, true,
		},
		{
			"catch-up runs the latest n, oldest first", cronfx.Policies{Misfire: cronfx.MisfireCatchUp, CatchUp: 3, LateWindow: time.Hour}, 5*time.Minute + 30*time.Second,
			[]string{"2000-01-01T00:04:00Z", "2000-01-01T00:05:00Z", "2000-01-01T00:06:00Z", "2000-01-01T00:07:00Z"}, true,
		},
		{
			"catch-up runs all if they are few", cronfx.Policies{Misfire: cronfx.MisfireCatchUp, CatchUp: 9, LateWindow: time.Hour}, 2*time.Minute + 30*time.Second,
			[]string{"2000-01-01T00:01:00Z", "2000-01-01T00:02:00Z", "2000-01-01T00:03:00Z", "2000-01-01T00:04:00Z"}, false,
		},
		{
			"none is run later than the late window", cronfx.Policies{Misfire: cronfx.MisfireCatchUp, CatchUp: 9, LateWindow: 90 * time.Second}, 5*time.Minute + 30*time.Second,
			[]string{"2000-01-01T00:05:00Z", "2000-01-01T00:06:00Z", "2000-01-01T00:07:00Z"}, true,
		},
		{ // river#1035: thousands of runs after two idle weeks
			"two idle weeks are one run", cronfx.Policies{LateWindow: 30 * 24 * time.Hour}, 14 * 24 * time.Hour,
			[]string{"2000-01-15T00:01:00Z"}, true,
		},
		{ // kubernetes#42649 and #83642: over 100 missed starts stop the job for good
			"a hundred thousand missed ticks do not stop the job", cronfx.Policies{Misfire: cronfx.MisfireCatchUp, CatchUp: 2}, 100 * 24 * time.Hour,
			[]string{"2000-04-10T00:00:00Z", "2000-04-10T00:01:00Z"}, true,
		},
	} {
		t.Run(c.promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t, 1, counting("* * * * *", c.policies), nil)
				cl.clocks[0].step(time.Second)
				for m := range 61 { // what was due before the start has run elsewhere
					claimElsewhere(t, cl, "cron-tick:job:"+time.Date(1999, 12, 31, 23, m, 0, 0, time.UTC).Format(time.RFC3339))
				}
				cl.start()
				time.Sleep(40 * time.Second)
				cl.clocks[0].step(c.pause)
				time.Sleep(50 * time.Second) // the jump is noticed within 30 s
				got := cl.ledger.instants()
				text := make([]string, len(got))
				for i := range got {
					text[i] = got[i].Format(time.RFC3339)
				}
				if !slices.Equal(text, c.want) {
					t.Errorf("ran at %v, want %v", text, c.want)
				}
				if missed := cl.ledger.count(cronfx.OutcomeSkippedMisfire); missed != map[bool]int{true: 1}[c.missed] {
					t.Errorf("%d records of missed ticks, want it to be told: %v", missed, c.missed)
				}
				cl.stop()
			})
		})
	}
}

func claimElsewhere(t *testing.T, c *cluster, key string) {
	t.Helper()
	if claim, err := c.lock.Client("elsewhere").Acquire(t.Context(), key, time.Hour); !claim.Acquired {
		t.Fatal(err)
	}
}
