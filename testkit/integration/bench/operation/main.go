// Command operation measures the operation coordinator beside a bare SET NX PX on the
// same redis-server, 64 callers at once, and prints the ratio of their throughputs:
//
//	go run ./testkit/integration/bench/operation
//
// The last line is "RATIO operation_vs_setnx_c64 <value>", the median of -runs runs of
// the mean of begin and complete; above 1 the coordinator would be faster than the one
// command that it cannot do without.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

func main() {
	runs := flag.Int("runs", 5, "number of runs")
	each := flag.Int("n", 20_000, "calls of each kind in a run")
	flag.Parse()
	if err := run(context.Background(), *runs, *each); err != nil {
		fmt.Fprintln(os.Stderr, "operation:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, runs, each int) error {
	b, err := openBench(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := b.once(ctx, each/10); err != nil { // connections and script are there
		return err
	}
	var ratios []float64
	for i := range runs {
		r, err := b.once(ctx, each)
		if err != nil {
			return err
		}
		fmt.Printf("run %d: setnx %s, begin %s, complete %s, ratio %.3f\n", i+1, r.setnx, r.begin, r.complete, r.ratio())
		ratios = append(ratios, r.ratio())
	}
	slices.Sort(ratios)
	fmt.Printf("RATIO operation_vs_setnx_c64 %.3f\n", ratios[len(ratios)/2])
	return nil
}

// speed is what one kind of calls took.
type speed struct {
	took time.Duration   // in all
	each []time.Duration // sorted at the end
}

func (s speed) perSecond() float64 { return float64(len(s.each)) / s.took.Seconds() }

func (s speed) percentile(p int) time.Duration {
	return s.each[len(s.each)*p/100].Round(time.Microsecond)
}

func (s speed) String() string {
	return fmt.Sprintf("%.0f/s (p50 %v, p99 %v)", s.perSecond(), s.percentile(50), s.percentile(99))
}

// result is one run.
type result struct{ setnx, begin, complete speed }

// ratio is the throughput of begins and completes, as many of each, over SET NX's.
func (r result) ratio() float64 {
	ours := float64(len(r.begin.each)+len(r.complete.each)) / (r.begin.took + r.complete.took).Seconds()
	return ours / r.setnx.perSecond()
}
