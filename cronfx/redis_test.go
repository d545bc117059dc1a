package cronfx_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// realReplicas makes n replicas that have connections of their own to a real server.
func realReplicas(t *testing.T, url string, n int, l *ledger, change func(i int, p *cronfx.Params)) []*cronfx.Runner {
	t.Helper()
	var runners []*cronfx.Runner
	for i := range n {
		name := fmt.Sprint("replica-", i)
		signals := observability.New(zap.NewNop())
		services, err := redismodule.Open(redismodule.Config{URL: url, InstanceID: name}, signals)
		if err != nil {
			t.Fatal(err)
		}
		p := cronfx.Params{
			Lock: services.Lock, Lease: services.Lease, InstanceID: name, Signals: signals, OnRun: l.record,
			History: 10_000, Fanout: noFanout,
		}
		change(i, &p)
		r, err := cronfx.NewRunner(p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := r.Stop(ctx); err != nil {
				t.Error(err)
			}
			if err := services.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		runners = append(runners, r)
	}
	return runners
}

// waitFor polls until done, for at most a minute.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// On a real redis-server: no tick runs twice, every replica accounts for every tick
// that it saw, and every tick has a winner.
func TestTicksRunOnceOnARealServer(t *testing.T) {
	server := testkit.StartRedis(t)
	l := &ledger{}
	runners := realReplicas(t, server.URL(), 5, l, func(i int, p *cronfx.Params) {
		clock := &skewed{}
		clock.step(time.Duration(i-2) * 10 * time.Millisecond)
		p.Clock = clock
		p.Jobs = []cronfx.Definition{cronfx.Job{
			Name: "fast", Schedule: "@every 100ms",
			Policies: cronfx.Policies{Misfire: cronfx.MisfireCatchUp, CatchUp: 20, Overlap: cronfx.OverlapDelay},
			Run:      l.run,
		}}
	})
	for _, r := range runners {
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "40 ticks", func() bool { return len(l.instants()) >= 40 })
	for _, r := range runners {
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[time.Time]int{}
	for _, at := range l.instants() {
		if seen[at]++; seen[at] > 1 {
			t.Errorf("tick %v ran %d times", at, seen[at])
		}
	}
	won := map[time.Time]bool{}
	for _, r := range l.all() {
		if r.Outcome != cronfx.OutcomeGated {
			won[r.Instant] = true
		}
	}
	for _, r := range l.all() {
		if !won[r.Instant] {
			t.Errorf("tick %v is recorded as %s by %s and as won by nobody", r.Instant, r.Outcome, r.Replica)
		}
	}
	// The keys outlive the runs, by more than late window and skew.
	for at := range seen {
		key := "cron-tick:fast:" + at.Format(time.RFC3339Nano)
		ttl := findTTL(t, server, key)
		if ttl < 8*time.Minute || ttl > 10*time.Minute {
			t.Errorf("%s lives for %v, want about 10 minutes", key, ttl)
		}
	}
}

// findTTL returns the TTL of the one lock whose key ends in the user's.
func findTTL(t *testing.T, server *testkit.RedisServer, key string) time.Duration {
	t.Helper()
	found, ok := server.Must("KEYS", "*:lock:{"+key+"}*").([]any)
	if !ok || len(found) != 1 {
		t.Fatalf("keys of %s: %v", key, found)
	}
	ms, _ := server.Must("PTTL", found[0]).(int64)
	return time.Duration(ms) * time.Millisecond
}

func TestAnOutageOfARealServerSkipsTicksAndEnds(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	l := &ledger{}
	r := realReplicas(t, proxy.URL(), 1, l, func(_ int, p *cronfx.Params) {
		p.Jobs = []cronfx.Definition{cronfx.Job{Name: "job", Schedule: "@every 200ms", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: l.run}}
	})[0]
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a run", func() bool { return len(l.instants()) > 0 })
	proxy.Refuse(true)
	proxy.Reset()
	waitFor(t, "three skipped ticks", func() bool { return l.count(cronfx.OutcomeSkippedUnavailable) >= 3 })
	during := len(l.instants())
	waitFor(t, "three more skipped ticks", func() bool { return l.count(cronfx.OutcomeSkippedUnavailable) >= 6 })
	if n := len(l.instants()); n != during {
		t.Errorf("%d ticks ran ungated", n-during)
	}
	proxy.Refuse(false)
	waitFor(t, "a run after the outage", func() bool { return len(l.instants()) > during })
}

func TestOverlapOnARealServer(t *testing.T) {
	server := testkit.StartRedis(t)
	l := &ledger{}
	var mu sync.Mutex
	now, most := 0, 0
	release := make(chan struct{})
	for _, r := range realReplicas(t, server.URL(), 3, l, func(_ int, p *cronfx.Params) {
		p.Jobs = []cronfx.Definition{cronfx.Job{Name: "slow", Schedule: "@every 200ms", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: func(ctx context.Context, _ cronfx.Tick) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			select {
			case <-release:
			case <-ctx.Done():
			}
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}}}
	}) {
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "five overlaps", func() bool { return l.count(cronfx.OutcomeSkippedOverlap) >= 5 })
	close(release)
	waitFor(t, "two completed runs", func() bool { return l.count(cronfx.OutcomeCompleted) >= 2 })
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		t.Errorf("%d runs side by side in the cluster", most)
	}
}

// A replica whose link is black-holed in a run is cancelled before another takes over.
func TestTakeOverOnARealServer(t *testing.T) {
	server := testkit.StartRedis(t)
	l := &ledger{}
	proxies := make([]*testkit.Proxy, 3)
	var mu sync.Mutex
	alive, most := 0, 0
	started := make(chan int, 10)
	// The clocks stand just after the tick of a yearly job, so that no other is due.
	tick := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range proxies {
		proxies[i] = testkit.StartProxy(t, server.Addr())
		clock := &skewed{}
		clock.step(time.Until(tick.Add(time.Second)))
		r := realReplicas(t, proxies[i].URL(), 1, l, func(_ int, p *cronfx.Params) {
			p.InstanceID, p.Clock = fmt.Sprint("replica-", i), clock
			p.Jobs = []cronfx.Definition{cronfx.Job{
				Name: "job", Schedule: "@yearly", Policies: cronfx.Policies{Crash: cronfx.CrashTakeOver, LeaseTTL: 2 * time.Second},
				Run: func(ctx context.Context, tick cronfx.Tick) error {
					mu.Lock()
					alive++
					most = max(most, alive)
					mu.Unlock()
					started <- i
					if tick.Attempt == 1 {
						<-ctx.Done()
					}
					mu.Lock()
					alive--
					mu.Unlock()
					return ctx.Err()
				},
			}}
		})[0]
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := <-started
	proxies[first].BlackHole(true)
	defer proxies[first].BlackHole(false)
	waitFor(t, "the second attempt", func() bool { return l.count(cronfx.OutcomeCompleted) == 1 })
	if r := l.find(t, cronfx.OutcomeCompleted); r.Attempt != 2 || r.Replica == fmt.Sprint("replica-", first) {
		t.Errorf("completed as attempt %d by %s after %d was cut off", r.Attempt, r.Replica, first)
	}
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		t.Errorf("%d runs of the tick were alive at once", most)
	}
}

func TestTryEnqueueOrgJobOnARealServer(t *testing.T) {
	server := testkit.StartRedis(t)
	q := &queue{}
	runners := realReplicas(t, server.URL(), 3, &ledger{}, func(_ int, p *cronfx.Params) {
		p.Fanout = func() (semantic.Fanout, error) { return q, nil }
		p.Jobs = []cronfx.Definition{cronfx.FanoutJob{
			Name: "pending", Schedule: "*/10 * * * *", Scan: scanNone,
			ScanOrganization: func(_ context.Context, id string) semantic.Records { return records(id, 1, false) },
		}}
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[cronfx.EnqueueGateResult]int{}
	for i := range 60 {
		wg.Go(func() {
			result, err := runners[i%3].TryEnqueueOrgJob(t.Context(), "pending", fmt.Sprint("org-", i/3%4))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			counts[result]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if counts[cronfx.Enqueued] != 4 || counts[cronfx.Gated] != 56 {
		t.Errorf("results %v, want 4 organisations queued once each", counts)
	}
	if ttl := findTTL(t, server, "cron-fanout:pending:org-0"); ttl < 7*time.Minute || ttl > 8*time.Minute {
		t.Errorf("the gate is closed for %v, want about 8 minutes", ttl)
	}
}
