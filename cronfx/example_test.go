package cronfx_test

import (
	"context"
	"fmt"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/testkit"
)

// Two replicas have the same job; the tick runs on one of them.
func Example() {
	clock := testkit.NewClock() // stands at noon
	lock, lease := testkit.NewLockBackend(clock), testkit.NewLeaseBackend(clock)
	records := make(chan cronfx.RunRecord)
	for _, replica := range []string{"replica-a", "replica-b"} {
		runner, err := cronfx.NewRunner(cronfx.Params{
			Lock: lock.Client(replica), Lease: lease.Client(), InstanceID: replica, Clock: clock,
			Jobs: []cronfx.Definition{cronfx.Job{
				Name: "nightly-report", Schedule: "30 0 * * *", TimeZone: "Asia/Tokyo",
				Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip, Overlap: cronfx.OverlapSkip},
				Run: func(_ context.Context, tick cronfx.Tick) error {
					fmt.Println("report for", tick.Instant.Format(time.RFC3339))
					return nil
				},
			}},
			OnRun: func(r cronfx.RunRecord) { records <- r },
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := runner.Start(context.Background()); err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = runner.Stop(context.Background()) }()
	}
	go clock.Advance(4 * time.Hour)

	outcomes := map[cronfx.Outcome]int{}
	for range 2 {
		r := <-records
		outcomes[r.Outcome]++
	}
	fmt.Println(outcomes)
	// Output:
	// report for 2026-06-01T15:30:00Z
	// map[COMPLETED:1 GATED:1]
}

func ExampleRunner_NextRuns() {
	runner, err := cronfx.NewRunner(cronfx.Params{
		Lock: testkit.NewDistributedLock(nil), Lease: testkit.NewResourceLease(nil),
		InstanceID: "replica-a", Clock: testkit.NewClock(),
		Jobs: []cronfx.Definition{cronfx.Job{
			Name: "invoices", Schedule: "0 9 * * MON-FRI", TimeZone: "America/New_York",
			Run: func(context.Context, cronfx.Tick) error { return nil },
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	next, err := runner.NextRuns("invoices", 3)
	for _, t := range next {
		fmt.Println(t.Format(time.RFC3339), err)
	}
	// Output:
	// 2026-06-01T13:00:00Z <nil>
	// 2026-06-02T13:00:00Z <nil>
	// 2026-06-03T13:00:00Z <nil>
}
