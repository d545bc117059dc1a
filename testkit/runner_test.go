package testkit_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestRunnersOfOneBackendShareTheirTicksAndTheirQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testkit.NewRunnerBackend(nil)
		job := cronfx.FanoutJob{
			Name: "pending", Schedule: "* * * * *", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip},
			Scan: func(_ context.Context, tick cronfx.Tick) semantic.Records {
				return func(yield func(semantic.FanoutRecord, error) bool) {
					yield(semantic.FanoutRecord{OrganizationID: "acme", RecordID: tick.Instant.Format(time.RFC3339)}, nil)
				}
			},
		}
		for i := range 3 {
			r, err := b.Runner(fmt.Sprint("replica-", i), job)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Stop(context.WithoutCancel(t.Context())) }()
		}
		time.Sleep(2*time.Minute + time.Second)
		var got []string
		for _, q := range b.Fanout.Queued() {
			got = append(got, q.Domain+" "+q.Record.RecordID)
		}
		if want := "[pending 2000-01-01T00:01:00Z pending 2000-01-01T00:02:00Z]"; fmt.Sprint(got) != want {
			t.Errorf("queued %v, want %s", got, want)
		}
	})
}

func ExampleNewRunner() {
	ran := make(chan time.Time)
	clock := testkit.NewClock() // stands at noon
	runner, err := testkit.NewRunner(clock, cronfx.Job{
		Name: "report", Schedule: "30 12 * * *",
		Run: func(_ context.Context, tick cronfx.Tick) error {
			ran <- tick.Instant
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := runner.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	go clock.Advance(time.Hour)
	fmt.Println((<-ran).Format(time.TimeOnly))
	fmt.Println(runner.Stop(context.Background()))
	// Output:
	// 12:30:00
	// <nil>
}
