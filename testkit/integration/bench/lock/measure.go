package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/testkit"
)

// turns is in how many turns the span of each contender is measured.
const turns = 20

// rate is what one contender did in a run.
type rate struct {
	perSecond float64
	failures  int64
}

// compare measures the contenders for span each, in short turns, so that a machine that
// is slower for a second is so for all of them. Another one begins each time.
func compare(ctx context.Context, contenders []contender, callers int, span time.Duration, run int) map[string]rate {
	all := map[string]rate{}
	for turn := range turns {
		for i := range contenders {
			c := contenders[(i+run+turn)%len(contenders)]
			perSecond, failures := throughput(ctx, c, callers, span/turns)
			sum := all[c.name]
			all[c.name] = rate{sum.perSecond + perSecond/turns, sum.failures + failures}
		}
	}
	return all
}

// throughput is how many cycles of acquire and release a second the callers make, each
// on keys of its own. An acquire that fails although its key is free costs its time and
// counts for nothing.
func throughput(ctx context.Context, c contender, callers int, span time.Duration) (perSecond float64, failures int64) {
	var cycles, failed atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	end := begin.Add(span)
	for caller := range callers {
		all.Go(func() {
			key := fmt.Sprintf("bench-%s-%d", c.name, caller)
			for time.Now().Before(end) {
				release, err := c.acquire(ctx, key)
				if err != nil {
					failed.Add(1)
					continue
				}
				release()
				cycles.Add(1)
			}
		})
	}
	all.Wait()
	return float64(cycles.Load()) / time.Since(begin).Seconds(), failed.Load()
}

// allocations is the number of allocations of one cycle, in the whole process.
func allocations(ctx context.Context, c contender) float64 {
	const cycles = 500
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range cycles {
		if release, err := c.acquire(ctx, "allocations"); err == nil {
			release()
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / cycles
}

type spread struct{ p50, p95 time.Duration }

// handoff is the time from before a release until one of the waiters has the lock.
func handoff(ctx context.Context, server *testkit.RedisServer, c contender, waiters, times int) (spread, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	key := fmt.Sprintf("handoff-%s-%d", c.name, waiters)
	release, err := c.acquire(ctx, key)
	if err != nil {
		return spread{}, err
	}
	type taken struct {
		at      time.Time
		release func()
	}
	got := make(chan taken)
	failed := make(chan error, waiters)
	var all sync.WaitGroup
	work, stop := context.WithCancel(ctx)
	for range waiters {
		all.Go(func() {
			for work.Err() == nil {
				release, err := c.wait(work, key)
				if err != nil {
					if work.Err() == nil {
						failed <- err
					}
					return
				}
				select {
				case got <- taken{time.Now(), release}:
				case <-work.Done():
					release()
				}
			}
		})
	}
	var spans []time.Duration
	for range times {
		time.Sleep(20 * time.Millisecond) // all of them wait again
		begin := time.Now()
		release()
		select {
		case t := <-got:
			spans = append(spans, t.at.Sub(begin))
			release = t.release
		case err := <-failed:
			stop()
			return spread{}, err
		case <-ctx.Done():
			stop()
			return spread{}, errors.New("no waiter got the lock in time")
		}
	}
	stop()
	release()
	all.Wait()
	slices.Sort(spans)
	return spread{spans[len(spans)/2], spans[len(spans)*95/100]}, nil
}

// idle is how many commands a second one of many waiters costs while nothing happens.
func idle(ctx context.Context, server *testkit.RedisServer, c contender, waiters int, span time.Duration) (float64, error) {
	key := "idle-" + c.name
	release, err := c.acquire(ctx, key)
	if err != nil {
		return 0, err
	}
	defer release()
	work, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			if release, err := c.wait(work, key); err == nil {
				release()
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // all of them wait
	before, begin := processed(server), time.Now()
	time.Sleep(span)
	perSecond := float64(processed(server)-before-1) / time.Since(begin).Seconds()
	stop()
	all.Wait()
	return perSecond / float64(waiters), nil
}

// processed is the server's count of commands.
func processed(server *testkit.RedisServer) int64 {
	for line := range strings.Lines(fmt.Sprint(server.Must("INFO", "stats"))) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "total_commands_processed:"); ok {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}
