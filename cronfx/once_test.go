package cronfx_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// fiveReplicas runs a fast job every second for 1,000 ticks on five replicas whose
// clocks are up to 50 ms apart, and returns the cluster after it.
func fiveReplicas(t *testing.T, change func(i int, p *cronfx.Params)) *cluster {
	skews := []time.Duration{-50, -21, 0, 37, 50}
	c := newCluster(t, 5, func(c *cluster) []cronfx.Definition {
		return []cronfx.Definition{cronfx.Job{
			Name: "fast", Schedule: "@every 1s", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip},
			Run: func(ctx context.Context, tick cronfx.Tick) error {
				time.Sleep(time.Millisecond) // of the bubble's time
				return c.ledger.run(ctx, tick)
			},
		}}
	}, change)
	for i, skew := range skews {
		c.clocks[i].step(skew * time.Millisecond)
	}
	// Off the tick, so that no replica starts right at one.
	time.Sleep(500 * time.Millisecond)
	c.start()
	time.Sleep(1000 * time.Second)
	c.stop()
	return c
}

// gocron#841, jasonlvhit/gocron#160, ShedLock#6 and #8, python-arq/arq#196,
// asynq#1013: a fast job on replicas with skewed clocks runs several times per tick.
func TestATickRunsOnceHoweverFastTheHandlerAndSkewedTheClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fiveReplicas(t, nil)
		instants := c.ledger.instants()
		if len(instants) != 1000 {
			t.Errorf("%d runs in 1000 ticks", len(instants))
		}
		if distinct := slices.CompactFunc(slices.SortedFunc(slices.Values(instants), time.Time.Compare), time.Time.Equal); len(distinct) != 1000 {
			t.Errorf("%d distinct instants in 1000 ticks", len(distinct))
		}
		if won, lost := c.ledger.count(cronfx.OutcomeCompleted), c.ledger.count(cronfx.OutcomeGated); won != 1000 || lost != 4000 {
			t.Errorf("%d records of completed and %d of gated runs, want 1000 and 4000", won, lost)
		}
		if s := c.signals("cron.tick.skipped"); len(s) != 0 { // Hangfire#935, good_job PR#1615: losing is quiet
			t.Errorf("losing the gate was signalled: %v", s)
		}
	})
}

// The same load catches a gate that is given back with the run, as the schedulers
// above do.
func TestTheLoadCatchesAGateThatForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fiveReplicas(t, func(_ int, p *cronfx.Params) { p.Lock = ttlCut{p.Lock, 2 * time.Millisecond} })
		if n := len(c.ledger.instants()); n <= 1000 {
			t.Errorf("%d runs: the load would not see a broken gate", n)
		}
	})
}

// laravel#28016 (a fixed retention of an hour, a key without the date) and good_job#731
// (a tick's record deleted too early): the key is the full instant and outlives late
// window, jitter and skew.
func TestAClaimedTickIsRememberedBeyondLateWindowAndSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, counting("0 0 * * *", cronfx.Policies{LateWindow: 20 * time.Minute}), func(_ int, p *cronfx.Params) {
			p.MaxSkew = 10 * time.Minute
		})
		c.clocks[1].step(-10 * time.Minute)
		// The bubble begins at midnight: the first replica claims it right away, the
		// second at the last moment of its late window by a slow clock.
		if err := c.runners[0].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.lock.Holder("cron-tick:job:2000-01-01T00:00:00Z") != "replica-0" {
			t.Error("the tick's key is not held by the replica that ran it")
		}
		time.Sleep(30 * time.Minute)
		if err := c.runners[1].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantTimes(t, c.ledger.instants(), "2000-01-01T00:00:00Z")
		if c.ledger.count(cronfx.OutcomeGated) != 1 {
			t.Error("the late replica did not meet the gate")
		}
		c.stop()
	})
}

func TestSubSecondInstantsHaveKeysOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, counting("@every 250ms", cronfx.Policies{Misfire: cronfx.MisfireSkip}), nil)
		c.start()
		time.Sleep(1100 * time.Millisecond)
		wantTimes(t, c.ledger.instants(), "2000-01-01T00:00:00.25Z", "2000-01-01T00:00:00.5Z", "2000-01-01T00:00:00.75Z", "2000-01-01T00:00:01Z")
		if c.lock.Holder("cron-tick:job:2000-01-01T00:00:00.25Z") == "" {
			t.Error("no key cron-tick:job:2000-01-01T00:00:00.25Z")
		}
		c.stop()
	})
}

func TestRedisUnavailableSkipsTheTickAndRecordsIt(t *testing.T) {
	for name, down := range map[string]func(c *cluster) (heal func()){
		"lock down":   func(c *cluster) func() { return c.lock.Inject(testkit.FaultDown) },
		"lock silent": func(c *cluster) func() { return c.lock.Inject(testkit.FaultHang) },
		"lock mute":   func(c *cluster) func() { return c.lock.Inject(testkit.FaultLoseReplies) },
		"lease down":  func(c *cluster) func() { return c.lease.Inject(testkit.FaultDown) },
		"lease silent": func(c *cluster) func() {
			return c.lease.Inject(testkit.FaultHang)
		},
		"lease mute": func(c *cluster) func() { return c.lease.Inject(testkit.FaultLoseReplies) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, counting("* * * * *", cronfx.Policies{Misfire: cronfx.MisfireSkip}), nil)
				c.start()
				heal := down(c)
				time.Sleep(90 * time.Second)
				wantTimes(t, c.ledger.instants())
				r := c.ledger.find(t, cronfx.OutcomeSkippedUnavailable)
				if r.Err == nil || r.SkipReason == "" || r.Replica != "replica-0" || !r.End.Before(r.Instant.Add(10*time.Second)) {
					t.Errorf("record %+v: want an error, a reason, a replica and an end within the budget", r)
				}
				if s := c.signals("cron.tick.skipped"); !slices.Equal(s, []string{"UNAVAILABLE"}) {
					t.Errorf("signals %v, want one UNAVAILABLE", s)
				}
				heal()
				time.Sleep(time.Minute)
				wantTimes(t, c.ledger.instants(), "2000-01-01T00:02:00Z")
				c.stop()
			})
		})
	}
}

// A lost reply does not lose the tick: the lock recognises its own try.
func TestALostReplyOfTheGateDoesNotLoseTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, counting("* * * * *", cronfx.Policies{Misfire: cronfx.MisfireSkip}), nil)
		c.start()
		c.lock.Inject(testkit.FaultLoseReply)
		time.Sleep(61 * time.Second)
		wantTimes(t, c.ledger.instants(), "2000-01-01T00:01:00Z")
		c.stop()
	})
}

// slowLock answers after the process was paused.
type slowLock struct {
	semantic.DistributedLock
	clock *skewed
	pause time.Duration
}

func (l slowLock) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
	claim, err := l.DistributedLock.Acquire(ctx, key, ttl, opts...)
	l.clock.step(l.pause)
	return claim, err
}

func TestAProcessPausedForLongerThanATickIsRememberedDoesNotRunIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &skewed{}
		c := newCluster(t, 1, counting("* * * * *", cronfx.Policies{Misfire: cronfx.MisfireSkip}), func(_ int, p *cronfx.Params) {
			p.Clock = clock
			p.Lock = slowLock{testkit.NewLockBackend(clock).Client("a"), clock, time.Hour}
		})
		c.start()
		time.Sleep(61 * time.Second)
		wantTimes(t, c.ledger.instants())
		c.ledger.find(t, cronfx.OutcomeSkippedMisfire)
		c.stop()
	})
}
