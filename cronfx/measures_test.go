package cronfx_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/telemetry"
)

func TestWhatARunnerMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorders := []*telemetry.Recorder{telemetry.New(), telemetry.New()}
		var fail atomic.Bool
		c := newCluster(t, 2, func(cl *cluster) []cronfx.Definition {
			return []cronfx.Definition{cronfx.Job{Name: "job", Schedule: "* * * * *", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: func(context.Context, cronfx.Tick) error {
				time.Sleep(3 * time.Second)
				if fail.Load() {
					return errBoom
				}
				return nil
			}}}
		}, func(i int, p *cronfx.Params) { p.Telemetry = recorders[i].Telemetry() })
		c.start()
		// Each tick is won by one of the two, and gates the other.
		sum := func(want map[string]float64, spans ...string) {
			t.Helper()
			got := map[string]float64{}
			var names []string
			for _, r := range recorders {
				points, err := r.Points(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range points {
					got[p.String()] += p.Value
					if p.Name == "coord.cron.run" && p.Sum != 3*p.Value {
						t.Errorf("%v runs took %v s", p.Value, p.Sum)
					}
					if p.Name == "coord.cron.lag" && p.Sum > 0.5 {
						t.Errorf("ticks began %v s late", p.Sum)
					}
				}
				for _, s := range r.Spans() {
					names = append(names, telemetry.SpanAttribute(s, "coord.outcome")+" "+s.Status().Code.String())
				}
			}
			for point, value := range want {
				if got[point] != value {
					t.Errorf("%s is %v, want %v; all: %v", point, got[point], value, got)
				}
			}
			for _, want := range spans {
				if !strings.Contains(strings.Join(names, ","), want) {
					t.Errorf("no span %q in %q", want, names)
				}
			}
		}
		time.Sleep(time.Minute + 10*time.Second)
		sum(map[string]float64{
			"coord.cron.ticks{coord.job=job,coord.outcome=completed}": 1, "coord.cron.ticks{coord.job=job,coord.outcome=gated}": 1,
			"coord.cron.run{coord.job=job,coord.outcome=completed}": 1, "coord.cron.lag{coord.job=job}": 1,
		}, "completed Unset", "gated Unset")
		fail.Store(true)
		time.Sleep(time.Minute)
		heal := c.lock.Inject(testkit.FaultDown)
		time.Sleep(time.Minute)
		heal()
		sum(map[string]float64{
			"coord.cron.ticks{coord.job=job,coord.outcome=failed}": 1, "coord.cron.ticks{coord.job=job,coord.outcome=gated}": 2,
			"coord.cron.ticks{coord.job=job,coord.outcome=skipped_unavailable}": 2,
			"coord.cron.run{coord.job=job,coord.outcome=failed}":                1, "coord.cron.lag{coord.job=job}": 2,
		}, "failed Error", "skipped_unavailable Error")
		c.stop()
	})
}

func TestABrokenProviderFailsTheConstruction(t *testing.T) {
	_, err := cronfx.NewRunner(cronfx.Params{
		Lock: testkit.NewLockBackend(nil).Client("r"), Lease: testkit.NewLeaseBackend(nil).Client(), InstanceID: "r",
		Jobs:      []cronfx.Definition{cronfx.Job{Name: "job", Schedule: "* * * * *", Run: func(context.Context, cronfx.Tick) error { return nil }}},
		Telemetry: observability.Telemetry{Meter: telemetry.Broken{}},
	})
	if err == nil || !strings.Contains(err.Error(), "cron Telemetry.Meter: not usable") {
		t.Errorf("error %v", err)
	}
}
