// Command lock measures Coord's lock beside the Go lock libraries for Redis, all on the
// same redis-server in the same run:
//
//	go run ./testkit/integration/bench/lock
//
// It prints a table of acquire-and-release cycles with 1, 32 and 128 callers, of the
// time from a release to the next holder with 1 and with 100 waiters, and of what 100
// idle waiters cost the server; then one line "RATIO <name> <value>" per comparison,
// each the median over the runs of ours divided by theirs in throughput.
//
// With -awake, the default on Linux, the processors do not sleep while one caller is
// measured. Without it that mostly tells how long an idle virtual machine takes to wake up.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"github.com/wrkbelt/coord/testkit"
)

// callerCounts are how many callers make cycles at once.
var callerCounts = []int{1, 32, 128}

func main() {
	spinIfAsked()
	runs := flag.Int("runs", 5, "how often everything is measured")
	span := flag.Duration("span", time.Second, "how long each throughput is measured")
	awake := flag.Bool("awake", runtime.GOOS == "linux", "keep the processors from sleeping while one caller is measured")
	handoffs := flag.Int("handoffs", 100, "how many handoffs are timed in a run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *runs, *span, *handoffs, *awake); err != nil {
		fmt.Fprintln(os.Stderr, "bench lock:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, runs int, span time.Duration, handoffs int, awake bool) error {
	server, err := testkit.LaunchRedis(ctx, "")
	if err != nil {
		return err
	}
	defer server.Stop()
	contenders, closeAll, err := open(ctx, server.URL(), server.Addr())
	if err != nil {
		return err
	}
	defer closeAll()

	cycles := map[string]map[int][]float64{} // per second, by name and callers
	failed := map[string]int64{}             // acquires of free keys
	for n := range runs {
		for _, callers := range callerCounts {
			sleep := func() {}
			if awake && callers == 1 { // more of them do not let the processors sleep
				if sleep, err = keepAwake(ctx); err != nil {
					return err
				}
			}
			measured := compare(ctx, contenders, callers, span, n)
			sleep()
			for name, did := range measured {
				failed[name] += did.failures
				if cycles[name] == nil {
					cycles[name] = map[int][]float64{}
				}
				cycles[name][callers] = append(cycles[name][callers], did.perSecond)
			}
		}
	}
	fmt.Printf("%-14s %14s %14s %14s %10s %18s\n", "", "cycles/s (1)", "cycles/s (32)", "cycles/s (128)", "allocs", "failed acquires")
	for _, c := range contenders {
		fmt.Printf("%-14s %14.0f %14.0f %14.0f %10.0f %18d\n", c.name, median(cycles[c.name][1]), median(cycles[c.name][32]), median(cycles[c.name][128]), allocations(ctx, c), failed[c.name])
	}

	fmt.Println()
	for _, waiters := range []int{1, 100} {
		for _, c := range contenders {
			if c.wait == nil || (waiters > 1 && c.name == "rueidislock") {
				continue // its waiters of one process share one lock that they pass on among themselves
			}
			d, err := handoff(ctx, server, c, waiters, handoffs)
			if err != nil {
				return fmt.Errorf("handoff of %s with %d waiters: %w", c.name, waiters, err)
			}
			fmt.Printf("handoff %-12s %3d waiters  p50 %8v  p95 %8v\n", c.name, waiters, d.p50.Round(10*time.Microsecond), d.p95.Round(10*time.Microsecond))
		}
	}

	fmt.Println()
	for _, c := range contenders {
		if c.wait == nil {
			continue
		}
		perWaiter, err := idle(ctx, server, c, 100, 5*time.Second)
		if err != nil {
			return fmt.Errorf("idle waiters of %s: %w", c.name, err)
		}
		fmt.Printf("idle    %-12s 100 waiters  %.3f commands/s each\n", c.name, perWaiter)
	}

	fmt.Println()
	for _, callers := range callerCounts {
		for _, c := range contenders[1:] {
			fmt.Printf("RATIO lock_vs_%s_c%d %.2f\n", c.name, callers, ratio(cycles["coord"][callers], cycles[c.name][callers]))
		}
	}
	return nil
}

// ratio is the median over the runs of ours over theirs in the same run.
func ratio(ours, theirs []float64) float64 {
	var all []float64
	for i := range ours {
		all = append(all, ours[i]/theirs[i])
	}
	return median(all)
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
