package cronfx_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
)

// robfig/cron#366 and gocron's panic listener: a panic ends the process. asynq#1013,
// #653 and #395: a failed tick blocks the ones after it.
func TestAFailedRunIsRecordedAndBlocksNoLaterTick(t *testing.T) {
	for name, c := range map[string]struct {
		fail func() error
		is   func(err error) bool
	}{
		"error": {func() error { return errBoom }, func(err error) bool { return errors.Is(err, errBoom) }},
		"panic": {func() error { panic("boom") }, func(err error) bool {
			var p *cronfx.PanicError
			return errors.As(err, &p) && p.Value == "boom" && strings.Contains(string(p.Stack), "run_test.go")
		}},
		"panic with an error": {func() error { panic(errBoom) }, func(err error) bool { return errors.Is(err, errBoom) }},
		"Goexit":              {func() error { runtime.Goexit(); return nil }, func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				c2 := newCluster(t, 1, func(cl *cluster) []cronfx.Definition {
					return []cronfx.Definition{
						cronfx.Job{Name: "failing", Schedule: "* * * * *", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: func(ctx context.Context, tick cronfx.Tick) error {
							if first {
								first = false
								return c.fail()
							}
							return cl.ledger.run(ctx, tick)
						}},
					}
				}, nil)
				c2.start()
				time.Sleep(2*time.Minute + time.Second)
				if r := c2.ledger.find(t, cronfx.OutcomeFailed); !c.is(r.Err) {
					t.Errorf("error %v", r.Err)
				}
				if s := c2.signals("cron.job.failed"); len(s) != 1 {
					t.Errorf("%d cron.job.failed signals, want 1", len(s))
				}
				wantTimes(t, c2.ledger.instants(), "2000-01-01T00:02:00Z")
				if s := c2.runners[0].Jobs()[0]; s.Running != 0 || !s.LastSuccess.Equal(time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC)) {
					t.Errorf("status %+v: want none running and the last success at 00:02", s)
				}
				c2.stop()
			})
		})
	}
}

func TestARunKnowsItsTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got cronfx.Tick
		c := newCluster(t, 1, one(cronfx.Job{Name: "job", Schedule: "* * * * *", TimeZone: "Asia/Tokyo", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: func(_ context.Context, tick cronfx.Tick) error {
			got = tick
			return nil
		}}), nil)
		c.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := cronfx.Tick{Job: "job", Instant: time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC), Attempt: 1, Organizations: c.runners[0]}
		if got != want {
			t.Errorf("tick %+v, want %+v", got, want)
		}
		c.stop()
	})
}

func TestTimeoutEndsTheRunsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{spec: "0 * * * *", took: time.Hour, policies: cronfx.Policies{Timeout: 5 * time.Minute, Misfire: cronfx.MisfireSkip}}
		c := newCluster(t, 1, s.jobs, nil)
		c.start()
		time.Sleep(time.Hour + 6*time.Minute)
		r := c.ledger.find(t, cronfx.OutcomeFailed)
		if !errors.Is(r.Err, context.DeadlineExceeded) || r.End.Sub(r.Start) != 5*time.Minute {
			t.Errorf("record %+v, want a deadline error after 5 minutes", r)
		}
		c.stop()
	})
}

func TestTriggerRunsNowThroughTheSameGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{spec: "0 * * * *", took: 10 * time.Second, policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}}
		c := newCluster(t, 2, s.jobs, nil)
		if _, err := c.runners[0].Trigger(t.Context(), "slow"); !errors.Is(err, cronfx.ErrNotRunning) {
			t.Errorf("before Start: %v, want ErrNotRunning", err)
		}
		c.start()
		time.Sleep(20*time.Minute + 300*time.Millisecond)
		got := make(chan cronfx.RunRecord, 2)
		for _, r := range c.runners { // two operators click at once
			go func() {
				rec, err := r.Trigger(t.Context(), "slow")
				if err != nil {
					t.Error(err)
				}
				got <- rec
			}()
		}
		outcomes := []string{string((<-got).Outcome), string((<-got).Outcome)}
		slices.Sort(outcomes)
		if !slices.Equal(outcomes, []string{"COMPLETED", "GATED"}) {
			t.Errorf("two triggers in one second: %v, want one run", outcomes)
		}
		if tick := c.ledger.first(); !tick.Manual || !tick.Instant.Equal(time.Date(2000, 1, 1, 0, 20, 0, 0, time.UTC)) {
			t.Errorf("tick %+v, want a manual one of this second", tick)
		}
		// While a scheduled run is at work, a manual one is skipped as any other.
		time.Sleep(time.Until(time.Date(2000, 1, 1, 1, 0, 5, 0, time.UTC)))
		rec, err := c.runners[0].Trigger(t.Context(), "slow")
		if err != nil || rec.Outcome != cronfx.OutcomeSkippedOverlap {
			t.Errorf("during a run: %v, %v, want %s", rec.Outcome, err, cronfx.OutcomeSkippedOverlap)
		}
		if _, err := c.runners[0].Trigger(t.Context(), "other"); !errors.Is(err, semantic.ErrInvalidArgument) {
			t.Errorf("unknown job: %v", err)
		}
		c.stop()
	})
}

func TestTriggerReturnsPromptlyWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{spec: "0 * * * *", took: time.Hour, policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}}
		c := newCluster(t, 1, s.jobs, nil)
		c.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := c.runners[0].Trigger(ctx, "slow")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		synctest.Wait()
		c.ledger.find(t, cronfx.OutcomeInterrupted)
		c.stop()
	})
}

func TestHistoryIsBoundedAndNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("* * * * *", cronfx.Policies{Misfire: cronfx.MisfireSkip}), func(_ int, p *cronfx.Params) { p.History = 3 })
		c.start()
		time.Sleep(10*time.Minute + time.Second)
		var got []time.Time
		for _, r := range c.runners[0].History("job") {
			if r.Outcome != cronfx.OutcomeCompleted || r.Replica != "replica-0" || r.Job != "job" || r.Start.IsZero() || r.End.Before(r.Start) || r.Err != nil {
				t.Errorf("record %+v", r)
			}
			got = append(got, r.Instant)
		}
		wantTimes(t, got, "2000-01-01T00:10:00Z", "2000-01-01T00:09:00Z", "2000-01-01T00:08:00Z")
		if h := c.runners[0].History("other"); h != nil {
			t.Errorf("history of an unknown job: %v", h)
		}
		c.stop()
	})
}

func TestJobsAndNextRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nop := func(context.Context, cronfx.Tick) error { return nil }
		c := newCluster(t, 1, func(*cluster) []cronfx.Definition {
			return []cronfx.Definition{
				cronfx.Job{Name: "b", Schedule: "0 9 * * *", TimeZone: "America/New_York", Run: nop},
				cronfx.Job{Name: "a", Schedule: "@every 90s", Run: nop},
			}
		}, nil)
		jobs := c.runners[0].Jobs()
		if len(jobs) != 2 || jobs[0].Name != "a" || jobs[1].Name != "b" || jobs[1].TimeZone != "America/New_York" || jobs[0].TimeZone != "UTC" || jobs[0].Last != nil {
			t.Errorf("jobs %+v", jobs)
		}
		wantTimes(t, []time.Time{jobs[0].Next, jobs[1].Next}, "2000-01-01T00:01:30Z", "2000-01-01T14:00:00Z")
		next, err := c.runners[0].NextRuns("b", 3)
		if err != nil {
			t.Fatal(err)
		}
		wantTimes(t, next, "2000-01-01T14:00:00Z", "2000-01-02T14:00:00Z", "2000-01-03T14:00:00Z")
		for _, bad := range []func() error{
			func() error { _, err := c.runners[0].NextRuns("c", 1); return err },
			func() error { _, err := c.runners[0].NextRuns("a", 0); return err },
			func() error { _, err := c.runners[0].NextRuns("a", 1001); return err },
		} {
			if err := bad(); !errors.Is(err, semantic.ErrInvalidArgument) {
				t.Errorf("got %v, want an invalid argument", err)
			}
		}
	})
}

func TestThePanicOfAHookIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("* * * * *", cronfx.Policies{Misfire: cronfx.MisfireSkip}), func(_ int, p *cronfx.Params) {
			p.OnRun = func(r cronfx.RunRecord) { panic(fmt.Sprint("hook of ", r.Job)) }
		})
		c.start()
		time.Sleep(2*time.Minute + time.Second)
		wantTimes(t, c.ledger.instants(), "2000-01-01T00:01:00Z", "2000-01-01T00:02:00Z")
		c.stop()
	})
}
