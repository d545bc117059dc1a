package cronfx_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// skewed is the system clock, wrong by a changeable amount.
type skewed struct {
	mu sync.Mutex
	by time.Duration
}

func (s *skewed) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Round(0).Add(s.by)
}

func (s *skewed) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

func (s *skewed) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by += by
}

// ledger records what ran.
type ledger struct {
	mu      sync.Mutex
	ticks   []cronfx.Tick
	records []cronfx.RunRecord
}

func (l *ledger) run(_ context.Context, t cronfx.Tick) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ticks = append(l.ticks, t)
	return nil
}

func (l *ledger) record(r cronfx.RunRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
}

// instants returns those of the ticks that ran, in the order of running.
func (l *ledger) instants() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]time.Time, len(l.ticks))
	for i, t := range l.ticks {
		out[i] = t.Instant
	}
	return out
}

func (l *ledger) first() cronfx.Tick {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ticks[0]
}

func (l *ledger) all() []cronfx.RunRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records)
}

func (l *ledger) count(o cronfx.Outcome) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.records {
		if r.Outcome == o {
			n++
		}
	}
	return n
}

func (l *ledger) find(t *testing.T, o cronfx.Outcome) cronfx.RunRecord {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Outcome == o {
			return r
		}
	}
	t.Fatalf("no record with outcome %s in %v", o, l.records)
	return cronfx.RunRecord{}
}

// cluster is n replicas over one lock, one lease and one ledger.
type cluster struct {
	t       *testing.T
	lock    *testkit.LockBackend
	lease   *testkit.LeaseBackend
	ledger  *ledger
	logs    *observer.ObservedLogs
	clocks  []*skewed
	runners []*cronfx.Runner
}

// newCluster makes n replicas of jobs; change may adapt one's parameters. Use it inside
// a synctest bubble, whose clock it runs on.
func newCluster(t *testing.T, n int, jobs func(c *cluster) []cronfx.Definition, change func(i int, p *cronfx.Params)) *cluster {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	c := &cluster{t: t, lock: testkit.NewLockBackend(nil), lease: testkit.NewLeaseBackend(nil), ledger: &ledger{}, logs: logs}
	for i := range n {
		clock := &skewed{}
		p := cronfx.Params{
			Lock: c.lock.Client(fmt.Sprint("replica-", i)), Lease: c.lease.Client(),
			Signals: observability.New(zap.New(testkit.RecordSignals(core))), InstanceID: fmt.Sprint("replica-", i), Clock: clock,
			Jobs: jobs(c), OnRun: c.ledger.record,
		}
		if change != nil {
			change(i, &p)
		}
		r, err := cronfx.NewRunner(p)
		if err != nil {
			t.Fatal(err)
		}
		c.clocks, c.runners = append(c.clocks, clock), append(c.runners, r)
	}
	return c
}

func (c *cluster) start() {
	c.t.Helper()
	for _, r := range c.runners {
		if err := r.Start(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) stop() {
	c.t.Helper()
	for _, r := range c.runners {
		if err := r.Stop(context.WithoutCancel(c.t.Context())); err != nil {
			c.t.Fatal(err)
		}
	}
}

// signals returns the reasons of the cron.tick.skipped signals, or "" for each
// cron.job.failed.
func (c *cluster) signals(key observability.Key) []string {
	var reasons []string
	for _, e := range c.logs.FilterField(zap.String("event", string(key))).All() {
		reason, _ := e.ContextMap()["reason"].(string)
		reasons = append(reasons, reason)
	}
	return reasons
}

func one(j cronfx.Definition) func(*cluster) []cronfx.Definition {
	return func(*cluster) []cronfx.Definition { return []cronfx.Definition{j} }
}

// counting is the usual job: it runs at every spec and tells the ledger.
func counting(spec string, p cronfx.Policies) func(c *cluster) []cronfx.Definition {
	return func(c *cluster) []cronfx.Definition {
		return []cronfx.Definition{cronfx.Job{Name: "job", Schedule: spec, Policies: p, Run: c.ledger.run}}
	}
}

// ttlCut is a lock that forgets: it keeps no key for longer than most.
type ttlCut struct {
	semantic.DistributedLock
	most time.Duration
}

func (l ttlCut) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
	return l.DistributedLock.Acquire(ctx, key, min(ttl, l.most), opts...)
}

func wantTimes(t *testing.T, got []time.Time, want ...string) {
	t.Helper()
	text := make([]string, len(got))
	for i, g := range got {
		text[i] = g.Format(time.RFC3339Nano)
	}
	if !slices.Equal(text, want) {
		t.Errorf("ran at %v, want %v", text, want)
	}
}

var errBoom = errors.New("boom")
