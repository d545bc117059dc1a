package cronfx_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// runnerModule provides *Runner as coordfx.Module does.
func runnerModule(built *int, onRun func(cronfx.RunRecord)) fx.Option {
	return fx.Module("runner", fx.Provide(func(lc fx.Lifecycle, jobs cronfx.Jobs) (*cronfx.Runner, error) {
		*built++
		r, err := cronfx.NewRunner(cronfx.Params{
			Lock: testkit.NewDistributedLock(nil), Lease: testkit.NewResourceLease(nil), InstanceID: "replica",
			Fanout: noFanout, Jobs: jobs.Definitions, OnRun: onRun,
		})
		if err == nil {
			cronfx.Manage(lc, r)
		}
		return r, err
	}))
}

func newSoundJob() cronfx.Job { return sound() }

type dependency struct{ name string }

// fx#891 and fx#1039: a constructor that nobody needs is never run. One Provide is
// enough for the runner to be built and started. fx#801: its hook does not block.
func TestProvideAloneStartsTheRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		built, ran, l := 0, 0, &ledger{}
		app := fxtest.New(t, fx.NopLogger,
			runnerModule(&built, l.record),
			fx.Supply(&dependency{"injected"}),
			cronfx.Provide(func(d *dependency) (cronfx.Job, error) {
				return cronfx.Job{Name: d.name, Schedule: "* * * * *", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: func(context.Context, cronfx.Tick) error {
					ran++
					return nil
				}}, nil
			}),
			cronfx.Provide(func() cronfx.FanoutJob { return cronfx.FanoutJob{Name: "fanned", Schedule: "@hourly", Scan: scanNone} }),
		)
		began := time.Now()
		app.RequireStart()
		if took := time.Since(began); took != 0 {
			t.Errorf("start took %v", took)
		}
		// The start context ends with the start; the runner does not (anchors: a runner
		// derived from it dies silently).
		time.Sleep(2*time.Minute + time.Second)
		app.RequireStop()
		time.Sleep(time.Minute)
		if built != 1 || ran != 2 {
			t.Errorf("built %d times, ran %d times, want 1 and 2", built, ran)
		}
	})
}

func TestABadJobFailsTheAppBeforeItStarts(t *testing.T) {
	for name, c := range map[string]struct {
		option fx.Option
		names  string
	}{
		"bad schedule": {cronfx.Provide(func() cronfx.Job { return cronfx.Job{Name: "j", Schedule: "soon", Run: nop} }), "soon"},
		"unknown zone": {cronfx.Provide(func() cronfx.Job { return cronfx.Job{Name: "j", Schedule: "@daily", TimeZone: "Mars/Base", Run: nop} }), "Mars/Base"},
		"unknown policy": {cronfx.Provide(func() cronfx.Job {
			return cronfx.Job{Name: "j", Schedule: "@daily", Policies: cronfx.Policies{Overlap: "X"}, Run: nop}
		}), "Overlap"},
		"two of one name":    {fx.Options(cronfx.Provide(newSoundJob), cronfx.Provide(newSoundJob)), "sound"},
		"constructor fails":  {cronfx.Provide(func() (cronfx.Job, error) { return cronfx.Job{}, errBoom }), "boom"},
		"not a constructor":  {cronfx.Provide(cronfx.Job{}), "cronfx.Provide"},
		"nothing":            {cronfx.Provide(nil), "cronfx.Provide"},
		"another type":       {cronfx.Provide(func() *dependency { return nil }), "cronfx.Provide"},
		"too many results":   {cronfx.Provide(func() (cronfx.Job, cronfx.Job) { return cronfx.Job{}, cronfx.Job{} }), "cronfx.Provide"},
		"missing dependency": {cronfx.Provide(func(*dependency) cronfx.Job { return sound() }), "dependency"},
	} {
		t.Run(name, func(t *testing.T) {
			built := 0
			app := fx.New(fx.NopLogger, runnerModule(&built, nil), c.option)
			if err := app.Err(); err == nil || !strings.Contains(err.Error(), c.names) {
				t.Errorf("got %v, want an error that names %q", err, c.names)
			}
		})
	}
}

func TestProvideWithoutARunnerSaysWhatIsMissing(t *testing.T) {
	err := fx.New(fx.NopLogger, cronfx.Provide(newSoundJob)).Err()
	if err == nil || !strings.Contains(err.Error(), "*cronfx.Runner") {
		t.Errorf("got %v, want the missing *cronfx.Runner named", err)
	}
}

// kubernetes#139991: blocking stop hooks pass the deadline, and later ones are skipped.
func TestStopStaysWithinTheAppsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		built, closed, release := 0, false, make(chan struct{})
		app := fx.New(fx.NopLogger, fx.Invoke(func(lc fx.Lifecycle) {
			lc.Append(fx.StopHook(func(ctx context.Context) { closed = ctx.Err() == nil }))
		}), runnerModule(&built, nil), fx.StopTimeout(5*time.Second), cronfx.Provide(func() cronfx.Job {
			return cronfx.Job{Name: "deaf", Schedule: "* * * * *", Run: func(context.Context, cronfx.Tick) error {
				<-release
				return nil
			}}
		}))
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), app.StopTimeout())
		defer cancel()
		began := time.Now()
		err := app.Stop(ctx)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 3750*time.Millisecond {
			t.Errorf("%v after %v, want three quarters of the 5 s for the run and the rest for other hooks", err, took)
		}
		if !closed {
			t.Error("the hooks after the runner's did not run")
		}
		close(release)
		synctest.Wait()
	})
}

var _ semantic.Fanout = (*queue)(nil)
