// Command telemetry measures what metrics and traces cost a lock's cycle of acquire and
// release, on one redis-server in one run:
//
//	go run ./testkit/integration/bench/telemetry
//
// One client has no telemetry. One has the SDK's meter provider with a manual reader, and
// its tracer provider, which samples every span and discards it at its end; its calls are
// children of a sampled span, as in a traced request. A third has the same providers and
// is in a request that is not sampled, as most are. They take turns every few cycles, so
// that what else the machine does meets them alike.
//
// It prints the time and the allocations of a cycle of each, and "RATIO
// lock_telemetry_cost X" and "RATIO lock_telemetry_cost_unsampled X": with divided by
// without, the median over the runs. Smaller is better; 1 would be free.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/testkit"
)

func main() {
	runs := flag.Int("runs", 5, "how often everything is measured")
	turns := flag.Int("turns", 400, "turns of each client in a run")
	cycles := flag.Int("cycles", 10, "cycles of a turn")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *runs, *turns, *cycles); err != nil {
		fmt.Fprintln(os.Stderr, "bench telemetry:", err)
		os.Exit(1)
	}
}

// contender is one client of the server.
type contender struct {
	name     string
	ctx      context.Context // of its calls
	services *redismodule.Services
}

func run(ctx context.Context, runs, turns, cycles int) error {
	server, err := testkit.LaunchRedis(ctx, "")
	if err != nil {
		return err
	}
	defer server.Stop()

	meter := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	tracer := trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()), trace.WithSpanProcessor(discard{}))
	request, span := tracer.Tracer("bench").Start(ctx, "request")
	defer span.End()
	unsampled := trace.NewTracerProvider(trace.WithSampler(trace.ParentBased(trace.NeverSample())), trace.WithSpanProcessor(discard{}))
	contenders := []contender{{name: "without", ctx: ctx}, {name: "with", ctx: request}, {name: "unsampled", ctx: ctx}}
	telemetry := []observability.Telemetry{{}, {Meter: meter, Tracer: tracer}, {Meter: meter, Tracer: unsampled}}
	for i := range contenders {
		s, err := redismodule.Open(redismodule.Config{URL: server.URL(), Telemetry: telemetry[i]}, nil)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close(context.Background()) }()
		contenders[i].services = s
		if _, err := contenders[i].turn(500); err != nil { // connected, scripts known, tables grown
			return err
		}
	}

	ratios := map[string][]float64{}
	perCycle := map[string][]float64{} // nanoseconds
	for n := range runs {
		spent := make([]time.Duration, len(contenders))
		for turn := range turns {
			for i := range contenders {
				i = (i + turn + n) % len(contenders) // none is always the first
				d, err := contenders[i].turn(cycles)
				if err != nil {
					return err
				}
				spent[i] += d
			}
		}
		for i, c := range contenders {
			perCycle[c.name] = append(perCycle[c.name], float64(spent[i])/float64(turns*cycles))
			ratios[c.name] = append(ratios[c.name], float64(spent[i])/float64(spent[0]))
		}
	}
	for _, c := range contenders {
		allocs, err := c.allocations()
		if err != nil {
			return err
		}
		fmt.Printf("%-10s %9.2f µs/cycle %5.0f allocs/cycle\n", c.name, median(perCycle[c.name])/1000, allocs)
	}
	fmt.Printf("runs %.3f\nRATIO lock_telemetry_cost %.3f\n", ratios["with"], median(ratios["with"]))
	fmt.Printf("runs %.3f\nRATIO lock_telemetry_cost_unsampled %.3f\n", ratios["unsampled"], median(ratios["unsampled"]))
	return nil
}

// turn makes cycles and tells how long they took.
func (c contender) turn(cycles int) (time.Duration, error) {
	key := "bench-" + c.name
	began := time.Now()
	for range cycles {
		claim, err := c.services.Lock.Acquire(c.ctx, key, time.Minute)
		if err != nil || !claim.Acquired {
			return 0, errors.Join(fmt.Errorf("%s: the lock was not acquired: %+v", c.name, claim), err)
		}
		c.services.Lock.Release(c.ctx, key, claim.Token)
	}
	return time.Since(began), nil
}

// allocations is the number of allocations of one cycle.
func (c contender) allocations() (float64, error) {
	const cycles = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.turn(cycles)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / cycles, err
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// discard takes every span and keeps none.
type discard struct{}

func (discard) OnStart(context.Context, trace.ReadWriteSpan) {}
func (discard) OnEnd(trace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error               { return nil }
func (discard) ForceFlush(context.Context) error             { return nil }
