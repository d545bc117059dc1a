package redismodule

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// TestFiftyClientsAdmitExactlyMax: whatever the contention, exactly max pass, and each
// decision costs one command; those that come together share round trips.
// bucket4j#407, bucket4j#603
func TestFiftyClientsAdmitExactlyMax(t *testing.T) {
	const clients, perClient, most = 50, 20, 300
	server := testkit.StartRedis(t)
	network := newFaultNet()
	services := openServices(t, clients, Config{URL: server.URL(), PoolSize: 2, PoolTimeout: time.Minute, CommandTimeout: time.Minute}, network)
	for _, s := range services {
		s.Limiter.spent = nil // every decision is the server's
	}
	for round := range 5 {
		for _, algorithm := range algorithms {
			limit := semantic.Limit{Max: most, Window: 24 * time.Hour, Algorithm: algorithm}
			key := fmt.Sprint("round-", round)
			before, sentBefore := scriptCalls(t, server), network.sent()
			var admitted, failed atomic.Int64
			var all sync.WaitGroup
			for _, s := range services {
				for range perClient {
					all.Go(func() {
						switch d, err := s.Limiter.TryAcquire(context.Background(), key, 1, limit); {
						case err != nil:
							failed.Add(1)
							t.Errorf("TryAcquire: %v", err)
						case d.Allowed:
							admitted.Add(1)
						}
					})
				}
			}
			all.Wait()
			if admitted.Load() != most || failed.Load() != 0 {
				t.Errorf("%v: %d admitted, want exactly %d", algorithm, admitted.Load(), most)
			}
			if calls := scriptCalls(t, server) - before; calls != clients*perClient {
				t.Errorf("%v: %d commands for %d decisions, want one each", algorithm, calls, clients*perClient)
			}
			if sent := network.sent() - sentBefore; sent >= clients*perClient {
				t.Errorf("%v: %d writes for %d decisions, want fewer", algorithm, sent, clients*perClient)
			}
		}
	}
}

// scriptCalls is how many scripts the server has run, or refused because it did not know them.
func scriptCalls(t *testing.T, server *testkit.RedisServer) (calls int) {
	t.Helper()
	for line := range strings.Lines(server.Must("INFO", "commandstats").(string)) {
		if _, stats, ok := strings.Cut(line, "cmdstat_eval"); ok {
			_, count, _ := strings.Cut(stats, "calls=")
			count, _, _ = strings.Cut(count, ",")
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			calls += n
		}
	}
	return calls
}

// TestLostRepliesNeverCountTwice loses one reply in 20: what the server has counted is
// at most one for each call, at least one for each admission, and a call that failed is
// an error and no admission. jedis#3187, go-redis#2339
func TestLostRepliesNeverCountTwice(t *testing.T) {
	const seed, calls = 7, 800
	server := testkit.StartRedis(t)
	for _, algorithm := range algorithms {
		network := newFaultNet()
		limiter := openServices(t, 1, Config{URL: server.URL(), Namespace: "lost-" + algorithm.String()}, network)[0].Limiter
		network.withRandomFaults(seed, 20, time.Millisecond)
		limit := semantic.Limit{Max: 2 * calls, Window: semantic.MaxTTL, Algorithm: algorithm} // nothing flows back meanwhile
		var admitted, unknown atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range calls / 8 {
					d, err := limiter.TryAcquire(context.Background(), "k", 1, limit)
					switch {
					case err == nil && d.Allowed:
						admitted.Add(1)
					case errors.Is(err, semantic.ErrUnknown) && !d.Allowed:
						unknown.Add(1)
					default:
						t.Errorf("TryAcquire: %+v, %v, want admitted or ErrUnknown", d, err)
					}
				}
			})
		}
		all.Wait()
		network.calm()
		d, err := limiter.TryAcquire(context.Background(), "k", 1, limit)
		if err != nil {
			t.Fatal(err)
		}
		counted := limit.Max - d.Remaining - 1
		t.Logf("%v: %d calls, %d admitted, %d unknown, %d counted", algorithm, calls, admitted.Load(), unknown.Load(), counted)
		if counted > calls || counted < admitted.Load() {
			t.Errorf("%v: the server counted %d for %d calls and %d admissions", algorithm, counted, calls, admitted.Load())
		}
		if unknown.Load() == 0 {
			t.Errorf("%v: no reply was lost, this shows nothing", algorithm)
		}
	}
}

// TestWaitersCostNoRoundTrips: the number of commands goes with the admissions and the
// windows waited, not with the number of waiters. sidekiq#5315, openlinker#2019
func TestWaitersCostNoRoundTrips(t *testing.T) {
	const waiters = 300
	server := testkit.StartRedis(t)
	network := newFaultNet()
	limiter := openServices(t, 1, Config{URL: server.URL()}, network)[0].Limiter
	limit := semantic.Limit{Max: 100, Window: 400 * time.Millisecond}
	start, before := time.Now(), network.sent()
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			if err := limiter.Acquire(t.Context(), "k", 1, limit); err != nil {
				t.Errorf("Acquire: %v", err)
			}
		})
	}
	all.Wait()
	took, sent := time.Since(start), network.sent()-before
	windows := int(took/limit.Window) + 1
	t.Logf("%d waiters served in %v with %d commands", waiters, took, sent)
	if sent > waiters+2*windows {
		t.Errorf("%d commands for %d admissions in %d windows, want at most one each", sent, waiters, windows)
	}
	// Three windows' worth of tokens: the last ones come with the third window.
	// redisson#1524, redisson#1659: they come, and in the computed time.
	if took < 2*limit.Window || took > 30*time.Second {
		t.Errorf("served in %v, want a little over %v", took, 2*limit.Window)
	}
}

// TestMoreThanTheBudgetIsRefusedAtOnce: it could never be admitted, so nothing is asked
// and nothing waits. go-redis/redis_rate#103
func TestMoreThanTheBudgetIsRefusedAtOnce(t *testing.T) {
	server := testkit.StartEmbeddedRedis(t)
	network := newFaultNet()
	limiter := openServices(t, 1, Config{URL: server.URL()}, network)[0].Limiter
	before := network.sent()
	limit := semantic.PerSecond(20)
	if err := limiter.Acquire(t.Context(), "k", 200, limit); !errors.Is(err, semantic.ErrInvalidArgument) {
		t.Errorf("Acquire of 200 at 20 a second: %v, want ErrInvalidArgument", err)
	}
	if _, err := limiter.TryAcquire(t.Context(), "k", 200, limit); !errors.Is(err, semantic.ErrInvalidArgument) {
		t.Errorf("TryAcquire of 200 at 20 a second: %v, want ErrInvalidArgument", err)
	}
	if sent := network.sent() - before; sent != 0 || len(server.Keys()) != 1 { // the layout's key
		t.Errorf("%d commands, keys %v: want no trace of it", sent, server.Keys())
	}
}

// TestASpentBudgetIsRefusedLocally: no round trip until a token can be there, and the
// refusal still ends with the context and with close.
func TestASpentBudgetIsRefusedLocally(t *testing.T) {
	server := testkit.StartRedis(t)
	eachAlgorithm(t, semantic.PerDay(3), func(t *testing.T, limit semantic.Limit) {
		network := newFaultNet()
		s := openServices(t, 1, Config{URL: server.URL(), Namespace: "spent-" + limit.Algorithm.String()}, network)[0]
		take := func() semantic.Decision {
			d, err := s.Limiter.TryAcquire(t.Context(), "k", 1, limit)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		for range 3 {
			take()
		}
		before := network.sent()
		last := take()
		for range 100 {
			d := take()
			if d.Allowed || d.Remaining != 0 || d.RetryAfter > last.RetryAfter || d.ResetAfter > last.ResetAfter || d.RetryAfter <= 0 {
				t.Fatalf("%+v after %+v, want the same denial counted down", d, last)
			}
			last = d
		}
		if sent := network.sent() - before; sent != 0 {
			t.Errorf("%d commands for refusals of a budget known to be spent, want none", sent)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Limiter.TryAcquire(ended, "k", 1, limit); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
		s.Limiter.close()
		if _, err := s.Limiter.TryAcquire(t.Context(), "k", 1, limit); !errors.Is(err, semantic.ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	})
}

// TestSpentBudgetsAreBounded: many keys do not grow the memory without end.
func TestSpentBudgetsAreBounded(t *testing.T) {
	spent := newSpentBudgets()
	now := time.Now()
	limit := semantic.PerDay(1)
	for i := range 3 * maxSpent {
		spent.learn(fmt.Sprint(i), 1, limit, takeReply{untilOne: time.Hour, untilNext: time.Hour, untilFull: time.Hour}, now, now)
		if len(spent.at) > maxSpent {
			t.Fatalf("%d entries, want at most %d", len(spent.at), maxSpent)
		}
	}
	last := fmt.Sprint(3*maxSpent - 1)
	if _, known := spent.lookup(last, 1, limit, now); !known {
		t.Error("the latest entry was not kept")
	}
	if _, known := spent.lookup(last, 1, limit, now.Add(trustSpent)); known {
		t.Error("an answer is trusted beyond its bound")
	}
	// A reply that was overtaken by a later one does not shorten what is known.
	spent.learn("k", 1, limit, takeReply{untilOne: 30 * time.Second}, now, now)
	spent.learn("k", 1, limit, takeReply{untilOne: 10 * time.Second}, now, now)
	if _, known := spent.lookup("k", 1, limit, now.Add(20*time.Second)); !known {
		t.Error("an overtaken reply replaced a later one")
	}
}

func BenchmarkTryAcquire(b *testing.B) {
	server, err := testkit.LaunchRedis(b.Context(), b.TempDir())
	if err != nil {
		b.Skip(err)
	}
	defer server.Stop()
	s, err := Open(Config{URL: server.URL()}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	for _, algorithm := range algorithms {
		limit := semantic.Limit{Max: 1 << 40, Window: 24 * time.Hour, Algorithm: algorithm}
		b.Run(algorithm.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d, err := s.Limiter.TryAcquire(context.Background(), "k", 1, limit); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
	b.Run("known to be spent", func(b *testing.B) {
		limit := semantic.PerDay(1)
		_, _ = s.Limiter.TryAcquire(context.Background(), "k", 1, limit)
		b.ReportAllocs()
		for b.Loop() {
			if d, err := s.Limiter.TryAcquire(context.Background(), "k", 1, limit); err != nil || d.Allowed {
				b.Fatal(d, err)
			}
		}
	})
}
