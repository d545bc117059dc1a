package cronfx_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
)

// quartz#463 and #548, robfig/cron PR#480, PR#352 and PR#154: a clock that is set back
// fires the same tick again. Here the gate forgets, so that only the replica's own
// memory is tested.
func TestAClockSetBackFiresNoTickAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("* * * * *", cronfx.Policies{}), func(_ int, p *cronfx.Params) {
			p.Lock = ttlCut{p.Lock, time.Millisecond}
		})
		c.clocks[0].step(30 * time.Second)
		c.start()
		time.Sleep(2 * time.Minute) // the clock reads 00:02:30
		c.clocks[0].step(-2 * time.Minute)
		time.Sleep(3 * time.Minute) // 00:03:30
		wantTimes(t, c.ledger.instants(),
			"2000-01-01T00:00:00Z", "2000-01-01T00:01:00Z", "2000-01-01T00:02:00Z", "2000-01-01T00:03:00Z")
		// Nor does a restart of the runner.
		c.stop()
		c.clocks[0].step(-time.Minute)
		c.start()
		time.Sleep(2 * time.Minute) // 00:04:30
		wantTimes(t, c.ledger.instants()[4:], "2000-01-01T00:04:00Z")
		c.stop()
	})
}

// robfig/cron PR#26: the clock moves while the scheduler sleeps.
func TestAClockSetForwardIsNoticedWithinThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("0 12 * * *", cronfx.Policies{}), nil)
		c.start()
		time.Sleep(10 * time.Second)
		c.clocks[0].step(12 * time.Hour)
		time.Sleep(30 * time.Second)
		wantTimes(t, c.ledger.instants(), "2000-01-01T12:00:00Z")
		c.stop()
	})
}

// A clock that stood years ahead does not silence the job for years.
func TestTheCorrectionOfAVeryWrongClockBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("0 * * * *", cronfx.Policies{Misfire: cronfx.MisfireSkip}), nil)
		c.clocks[0].step(10 * 365 * 24 * time.Hour)
		c.start()
		time.Sleep(time.Minute)
		c.clocks[0].step(-10 * 365 * 24 * time.Hour)
		time.Sleep(time.Hour)
		wantTimes(t, c.ledger.instants(), "2000-01-01T01:00:00Z")
		c.stop()
	})
}

// sidekiq-cron#463, #147 and #132: a deploy across the tick loses it.
func TestADeployAcrossTheTickRunsItLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, counting("0 12 * * *", cronfx.Policies{LateWindow: 10 * time.Minute}), nil)
		time.Sleep(12*time.Hour + 8*time.Minute)
		c.start()
		synctest.Wait()
		wantTimes(t, c.ledger.instants(), "2000-01-01T12:00:00Z")
		c.stop()
		c.start() // once only
		synctest.Wait()
		wantTimes(t, c.ledger.instants(), "2000-01-01T12:00:00Z")
		c.stop()
	})
}

func TestATickBeyondTheLateWindowIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("0 12 * * *", cronfx.Policies{LateWindow: 10 * time.Minute}), nil)
		time.Sleep(12*time.Hour + 11*time.Minute)
		c.start()
		synctest.Wait()
		wantTimes(t, c.ledger.instants())
		if n := c.ledger.count(cronfx.OutcomeSkippedMisfire); n != 0 {
			t.Error("a tick from before the start was reported as missed")
		}
		c.stop()
	})
}

// river#791: a weekly job never fires when every day sees a deploy.
func TestAWeeklyJobFiresWithDailyDeploys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, counting("@weekly", cronfx.Policies{}), nil)
		time.Sleep(7 * time.Hour) // deploys are at 07:00, one replica after the other
		c.start()
		for range 21 {
			time.Sleep(24 * time.Hour)
			c.stop()
			c.start()
		}
		wantTimes(t, c.ledger.instants(), "2000-01-02T00:00:00Z", "2000-01-09T00:00:00Z", "2000-01-16T00:00:00Z")
		c.stop()
	})
}

func TestJitterDelaysButNeverDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 5, counting("* * * * *", cronfx.Policies{Jitter: 20 * time.Second, Misfire: cronfx.MisfireSkip}), nil)
		c.start()
		time.Sleep(100*time.Minute + 30*time.Second)
		if n := len(c.ledger.instants()); n != 100 {
			t.Errorf("%d runs in 100 ticks", n)
		}
		winners, delayed := map[string]int{}, 0
		for _, r := range c.ledger.all() {
			if late := r.Start.Sub(r.Instant); late < 0 || late > 20*time.Second {
				t.Fatalf("started %v after its instant", late)
			} else if late > time.Second {
				delayed++
			}
			if r.Outcome == cronfx.OutcomeCompleted {
				winners[r.Replica]++
			}
		}
		if len(winners) < 4 || delayed < 400 {
			t.Errorf("wins %v, %d of 500 delayed: jitter spreads neither", winners, delayed)
		}
		c.stop()
	})
}

func TestSchedulesFollowTheirZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, func(c *cluster) []cronfx.Definition {
			return []cronfx.Definition{cronfx.Job{Name: "job", Schedule: "0 9 * * *", TimeZone: "America/New_York", Run: c.ledger.run}}
		}, nil)
		c.start()
		time.Sleep(24 * time.Hour)
		wantTimes(t, c.ledger.instants(), "2000-01-01T14:00:00Z")
		c.stop()
	})
}
