package redismodule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// stillLimiter is a limiter on an embedded Redis; both go by clock. Without trust it
// does not remember spent budgets.
func stillLimiter(t *testing.T, clock *testkit.Clock, trust bool) (*RateLimiterService, *faultNet) {
	t.Helper()
	server := testkit.StartEmbeddedRedis(t, testkit.WithClock(clock))
	network := newFaultNet()
	s := openServices(t, 1, Config{URL: server.URL()}, network)[0]
	s.core.clock = clock
	l := newRateLimiterService(s.core)
	t.Cleanup(l.close)
	if !trust {
		l.spent = nil
	}
	return l, network
}

var algorithms = []semantic.LimitAlgorithm{semantic.FixedWindow, semantic.SlidingWindow, semantic.GCRA}

// TestScriptsDecideAsTheModel compares every decision of the scripts with that of the
// double, which computes them in another way, over random takes and times; with and
// without remembering spent budgets. upstash/ratelimit-js#157
func TestScriptsDecideAsTheModel(t *testing.T) {
	const seed, steps = 20261130, 500
	t.Logf("seed %d", seed)
	for _, algorithm := range algorithms {
		for _, trust := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v trust %v", algorithm, trust), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, uint64(algorithm)))
				clock := testkit.NewClock()
				limiter, network := stillLimiter(t, clock, trust)
				model := testkit.NewRateLimiter(clock)
				limits := []semantic.Limit{
					{Max: 1, Window: time.Second}, {Max: 3, Window: 700 * time.Millisecond},
					{Max: 60, Window: time.Second}, {Max: 1_000_000, Window: time.Minute},
					{Max: 7, Window: 24 * time.Hour},
				}
				denied := 0
				for step := range steps {
					limit := limits[random.IntN(len(limits))]
					limit.Algorithm = algorithm
					n := 1 + random.Int64N(limit.Max)
					if random.IntN(2) == 0 {
						n = min(limit.Max, 1+random.Int64N(3))
					}
					got, err := limiter.TryAcquire(t.Context(), "k", n, limit)
					want, _ := model.TryAcquire(t.Context(), "k", n, limit)
					if err != nil {
						t.Fatalf("step %d: %v", step, err)
					}
					if got.Allowed != want.Allowed || got.Remaining != want.Remaining ||
						(got.RetryAfter-want.RetryAfter).Abs() > 2*time.Microsecond || (got.ResetAfter-want.ResetAfter).Abs() > 2*time.Microsecond {
						t.Fatalf("step %d, %d of %+v: %+v, want %+v", step, n, limit, got, want)
					}
					const us = time.Microsecond // the server's resolution
					switch random.IntN(4) {
					case 0:
						clock.Advance(time.Duration(random.Int64N(int64(limit.Window/us))) * us)
					case 1:
						clock.Advance(time.Duration(random.Int64N(int64(limit.Window/20/us))) * us)
					case 2:
						clock.Advance(got.RetryAfter) // the very edge
					}
					if !got.Allowed {
						denied++
					}
				}
				if denied < steps/20 || denied > steps*19/20 {
					t.Errorf("%d of %d denied: this compares little", denied, steps)
				}
				if sent := network.sent(); trust == (sent >= steps) {
					t.Errorf("%d commands for %d takes with trust %v", sent, steps, trust)
				}
			})
		}
	}
}

// TestFixedWindowAdmitsWhatItDocuments: at most max in each window, counted from its
// first hit, and at most twice that in any span as long. redisson#2072, redisson#2931
func TestFixedWindowAdmitsWhatItDocuments(t *testing.T) {
	for _, algorithm := range algorithms {
		clock := testkit.NewClock()
		l, _ := stillLimiter(t, clock, true)
		random := rand.New(rand.NewPCG(1, uint64(algorithm)))
		limit := semantic.Limit{Max: 10, Window: time.Second, Algorithm: algorithm}
		var admitted []time.Time
		for range 600 {
			d, err := l.TryAcquire(t.Context(), "k", 1, limit)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted = append(admitted, clock.Now())
			}
			clock.Advance(time.Duration(random.Int64N(int64(60 * time.Millisecond))))
		}
		most := 0
		for i := range admitted {
			n := 0
			for _, a := range admitted[i:] {
				if a.Sub(admitted[i]) < limit.Window {
					n++
				}
			}
			most = max(most, n)
		}
		t.Logf("%v: at most %d of 10 in any window's span, %d in all", algorithm, most, len(admitted))
		allowed := map[semantic.LimitAlgorithm]int{semantic.FixedWindow: 20, semantic.SlidingWindow: 14, semantic.GCRA: 20}[algorithm]
		if most > allowed {
			t.Errorf("%v: %d admitted in one window's span, want at most %d", algorithm, most, allowed)
		}
		if algorithm != semantic.FixedWindow {
			continue
		}
		for i := 0; i < len(admitted); { // the windows from their first hits
			first, n := admitted[i], 0
			for ; i < len(admitted) && admitted[i].Sub(first) < limit.Window; i++ {
				n++
			}
			if n > 10 {
				t.Errorf("%d of 10 admitted in the window from %v", n, first)
			}
		}
	}
}

// realLimiter is a limiter on a real redis-server that does not remember spent budgets,
// so that every call reaches the server.
func realLimiter(t *testing.T) (*RateLimiterService, *testkit.RedisServer, *faultNet) {
	t.Helper()
	server := testkit.StartRedis(t)
	network := newFaultNet()
	l := openServices(t, 1, Config{URL: server.URL()}, network)[0].Limiter
	l.spent = nil
	return l, server, network
}

func eachAlgorithm(t *testing.T, limit semantic.Limit, run func(t *testing.T, limit semantic.Limit)) {
	t.Helper()
	for _, limit.Algorithm = range algorithms {
		t.Run(limit.Algorithm.String(), func(t *testing.T) { run(t, limit) })
	}
}

// TestABudgetWithoutTTLHeals: whatever has taken a key's TTL away, the next call gives
// it one, denied or not. redis/redis#4548, Tabcorp/redis-rate-limiter#1
func TestABudgetWithoutTTLHeals(t *testing.T) {
	l, server, _ := realLimiter(t)
	eachAlgorithm(t, semantic.PerMinute(2), func(t *testing.T, limit semantic.Limit) {
		key := l.budgetKey("k", limit)
		for _, n := range []int64{1, 1, 1} { // admitted, admitted, denied
			if _, err := l.TryAcquire(t.Context(), "k", n, limit); err != nil {
				t.Fatal(err)
			}
			if left := server.Must("PTTL", key).(int64); left <= 0 || left > 121_000 {
				t.Errorf("PTTL %d after a take, want a positive one and no more than two windows", left)
			}
			server.Must("PERSIST", key)
		}
		if d, err := l.TryAcquire(t.Context(), "k", 1, limit); d.Allowed || err != nil {
			t.Errorf("healing changed the count: %+v, %v", d, err)
		}
		if left := server.Must("PTTL", key).(int64); left <= 0 {
			t.Errorf("PTTL %d after a denial on a key without a TTL, want it healed", left)
		}
	})
}

// TestABudgetFromALaterClockHeals: after the server's clock has stepped back, nobody
// waits for longer than the limit itself makes them.
func TestABudgetFromALaterClockHeals(t *testing.T) {
	l, server, _ := realLimiter(t)
	future := time.Now().Add(time.Hour).UnixMicro()
	for algorithm, stored := range map[semantic.LimitAlgorithm]string{
		semantic.FixedWindow:   fmt.Sprintf("2 %d", future),
		semantic.SlidingWindow: fmt.Sprintf("%d 2 0", future/60_000_000),
		semantic.GCRA:          fmt.Sprintf("%d 2", future),
	} {
		limit := semantic.Limit{Max: 2, Window: time.Minute, Algorithm: algorithm}
		server.Must("SET", l.budgetKey("k", limit), stored, "PX", 7_200_000)
		d, err := l.TryAcquire(t.Context(), "k", 1, limit)
		if err != nil || d.Allowed || d.RetryAfter > 2*time.Minute {
			t.Errorf("%v: %+v, %v, want denied for two windows at most", algorithm, d, err)
		}
		if left := server.Must("PTTL", l.budgetKey("k", limit)).(int64); left > 121_000 {
			t.Errorf("%v: PTTL %d, want no more than two windows", algorithm, left)
		}
	}
}

// TestADenialWritesNothing counts the server's writes. envoyproxy/ratelimit#185
func TestADenialWritesNothing(t *testing.T) {
	l, server, _ := realLimiter(t)
	eachAlgorithm(t, semantic.PerDay(2), func(t *testing.T, limit semantic.Limit) {
		take := func(n int64) semantic.Decision {
			d, err := l.TryAcquire(t.Context(), "k", n, limit)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		take(2)
		before := server.Must("GET", l.budgetKey("k", limit))
		server.Must("CONFIG", "RESETSTAT")
		for range 20 {
			if take(1).Allowed {
				t.Fatal("a spent budget admitted")
			}
		}
		stats := server.Must("INFO", "commandstats").(string)
		for _, write := range []string{"set", "pexpire", "del", "incrby"} {
			if strings.Contains(stats, "cmdstat_"+write+":") {
				t.Errorf("a denial wrote: %s", stats)
			}
		}
		if after := server.Must("GET", l.budgetKey("k", limit)); after != before {
			t.Errorf("stored %v before denials and %v after", before, after)
		}
	})
}

// TestAKeyOfAnotherKindIsRefused: what another program has put there is neither a full
// nor an empty budget, and is not overwritten.
func TestAKeyOfAnotherKindIsRefused(t *testing.T) {
	l, server, _ := realLimiter(t)
	eachAlgorithm(t, semantic.PerMinute(2), func(t *testing.T, limit semantic.Limit) {
		key := l.budgetKey("k", limit)
		for _, put := range [][]any{{"SET", key, "hello"}, {"SET", key, "-1 x"}, {"LPUSH", key, "x"}} {
			server.Must("DEL", key)
			server.Must(put...)
			d, err := l.TryAcquire(t.Context(), "k", 1, limit)
			if d.Allowed || !errors.Is(err, semantic.ErrWrongType) {
				t.Errorf("after %v: %+v, %v, want ErrWrongType", put, d, err)
			}
			if kind := server.Must("TYPE", key); kind != map[bool]string{true: "list", false: "string"}[put[0] == "LPUSH"] {
				t.Errorf("after %v: now a %v", put, kind)
			}
		}
	})
}

func TestTakeRepliesAreDecodedOrRefused(t *testing.T) {
	for _, bad := range []any{nil, "x", int64(1), []any{}, []any{int64(1), int64(2), int64(3), int64(4)}, []any{int64(1), int64(2), int64(3), int64(4), "5"}} {
		if _, ok := decodeTake(bad); ok {
			t.Errorf("%v was decoded", bad)
		}
	}
}

// TestEveryScriptOfCacheAndLimiterSaysWhatItIs keeps the headers complete.
func TestEveryScriptOfCacheAndLimiterSaysWhatItIs(t *testing.T) {
	entries, err := luaFiles.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		source, _ := luaFiles.ReadFile("lua/" + e.Name())
		for _, part := range []string{"-- KEYS[1]", "-- Reply: ", "afe to repeat"} {
			if !strings.Contains(string(source), part) {
				t.Errorf("%s: no %q in its header", e.Name(), part)
			}
		}
	}
}
