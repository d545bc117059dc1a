package operationstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func testGate(active, queued, bytes int) (*gate, *testkit.Clock) {
	clock := testkit.NewClock()
	return newGate(Config{MaxActive: active, MaxQueued: queued, MaxQueuedBytes: bytes, QueueDeadline: 250 * time.Millisecond}, clock), clock
}

// queueUp lets n callers wait, one after the other, and gives what each came to.
func queueUp(t *testing.T, g *gate, n, size int) []chan error {
	t.Helper()
	results := make([]chan error, n)
	for i := range results {
		before := g.snapshot()
		results[i] = make(chan error, 1)
		go func() { results[i] <- g.enter(context.Background(), size) }()
		until(t, func() bool { s := g.snapshot(); return s.Queued > before.Queued || s.Rejected > before.Rejected })
	}
	return results
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("it never came to that")
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func fill(t *testing.T, g *gate, n int) {
	t.Helper()
	for i := range n {
		if err := g.enter(t.Context(), 1); err != nil {
			t.Fatalf("slot %d: %v", i+1, err)
		}
	}
}

func TestTheDefaultBoundsAreExactAtNAndN1(t *testing.T) {
	c, err := Config{Redis: validRedis()}.Settled()
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxActive != 64 || c.MaxQueued != 1024 || c.MaxQueuedBytes != 4<<20 || c.QueueDeadline != 250*time.Millisecond || c.CommandDeadline != 2*time.Second {
		t.Fatalf("defaults %+v", c)
	}
	clock := testkit.NewClock()
	g := newGate(c, clock)
	fill(t, g, 64)
	waiting := queueUp(t, g, 1024, 1)
	if s := g.snapshot(); s.Active != 64 || s.Queued != 1024 || s.QueuedBytes != 1024 || s.Rejected != 0 {
		t.Fatalf("at the bounds: %+v", s)
	}
	if err := g.enter(t.Context(), 1); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("number 1,025 in the queue: %v", err)
	}
	clock.Advance(250*time.Millisecond - 1)
	if s := g.snapshot(); s.Expired != 0 {
		t.Fatalf("%d expired before the queue deadline", s.Expired)
	}
	clock.Advance(1)
	for i, w := range waiting {
		if err := <-w; !errors.Is(err, ErrQueueDeadline) {
			t.Fatalf("waiter %d at the queue deadline: %v", i, err)
		}
	}
	if s := g.snapshot(); s.Active != 64 || s.Queued != 0 || s.QueuedBytes != 0 || s.Expired != 1024 || s.Rejected != 1 || s.Dispatched != 64 {
		t.Fatalf("after the deadline: %+v", s)
	}
	for range 64 {
		g.leave()
	}
	if s := g.snapshot(); s.Active != 0 {
		t.Fatalf("after all have left: %+v", s)
	}
}

func TestQueuedBytesAreBoundedExactlyAndActiveOnesAreNot(t *testing.T) {
	g, _ := testGate(1, 10, 100)
	if err := g.enter(t.Context(), 1_000_000); err != nil {
		t.Fatalf("a command that need not wait: %v", err)
	}
	waiting := queueUp(t, g, 2, 50)
	if err := g.enter(t.Context(), 1); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("byte 101: %v", err)
	}
	g.leave()
	if err := <-waiting[0]; err != nil {
		t.Fatal(err)
	}
	more := queueUp(t, g, 1, 50) // the bytes of the one who got in are free again
	g.leave()
	g.leave()
	for _, w := range []chan error{waiting[1], more[0]} {
		if err := <-w; err != nil {
			t.Fatal(err)
		}
	}
	g.leave()
	if s := g.snapshot(); s.Active != 0 || s.QueuedBytes != 0 {
		t.Fatalf("at the end: %+v", s)
	}
}

func TestFirstInIsFirstOutAndNobodyJumpsTheQueue(t *testing.T) {
	g, _ := testGate(1, 100, 1<<20)
	fill(t, g, 1)
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range 50 {
		before := g.snapshot().Queued
		all.Go(func() {
			if err := g.enter(context.Background(), 1); err != nil {
				t.Errorf("enter: %v", err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			g.leave()
		})
		until(t, func() bool { return g.snapshot().Queued > before })
	}
	g.leave()
	all.Wait()
	if !slices.IsSorted(order) || len(order) != 50 {
		t.Fatalf("out in the order %v", order)
	}
}

func TestCancellingGivesThePlaceUp(t *testing.T) {
	g, _ := testGate(1, 10, 1<<20)
	fill(t, g, 1)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- g.enter(ctx, 7) }()
	until(t, func() bool { return g.snapshot().Queued == 1 })
	second := queueUp(t, g, 1, 1)[0]
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if s := g.snapshot(); s.Queued != 1 || s.QueuedBytes != 1 || s.Cancelled != 1 {
		t.Fatalf("after the cancel: %+v", s)
	}
	g.leave()
	if err := <-second; err != nil {
		t.Fatalf("the next in line: %v", err)
	}
	if err := g.enter(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("with an ended context: %v", err)
	}
}

// A slot handed over at the very moment at which its waiter gives up is not lost.
func TestNoSlotIsLostBetweenHandingOverAndGivingUp(t *testing.T) {
	g, clock := testGate(3, 1000, 1<<20)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for round := range 200 {
				ctx, cancel := context.WithCancel(context.Background())
				if (i+round)%3 == 0 {
					go cancel()
				}
				if g.enter(ctx, 1) == nil {
					g.leave()
				}
				cancel()
				if round%50 == 0 {
					clock.Advance(time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	if s := g.snapshot(); s.Active != 0 || s.Queued != 0 || s.QueuedBytes != 0 {
		t.Fatalf("when all is over: %+v", s)
	}
	fill(t, g, 3)
}

func TestAClosedGateDismissesAllAndAdmitsNobody(t *testing.T) {
	g, _ := testGate(1, 10, 1<<20)
	fill(t, g, 1)
	waiting := queueUp(t, g, 3, 1)
	g.close()
	for _, w := range waiting {
		if err := <-w; !errors.Is(err, semantic.ErrClosed) {
			t.Fatalf("a waiter: %v", err)
		}
	}
	g.leave()
	if err := g.enter(t.Context(), 1); !errors.Is(err, semantic.ErrClosed) {
		t.Fatalf("after close: %v", err)
	}
}

// slowToSettle is a connection whose callers can leave before their requests end, which
// they do when they are told to.
type slowToSettle struct{ settle chan struct{} }

func (s slowToSettle) Run(ctx context.Context, op conn.Op, _ *conn.Script, _ []string, _ ...any) (any, error) {
	op.InFlight(1)
	go func() {
		<-s.settle
		op.InFlight(-1)
	}()
	<-ctx.Done()
	return nil, &semantic.OutcomeError{Operation: op.Name, Key: op.Key, Outcome: semantic.OutcomeUnknown, Cause: ctx.Err()}
}

// A command that has timed out keeps its slot until the request has really ended: else
// a silent server would be sent ever more.
func TestATimedOutCommandKeepsItsSlotUntilItSettles(t *testing.T) {
	config, err := Config{Redis: validRedis(), MaxActive: 2, QueueDeadline: 20 * time.Millisecond, CommandDeadline: 50 * time.Millisecond}.Settled()
	if err != nil {
		t.Fatal(err)
	}
	link := slowToSettle{make(chan struct{})}
	store := newStore(config, newTransport(link), semantic.SystemClock{}, nil)
	var gone sync.WaitGroup
	for i := range 2 {
		gone.Go(func() {
			if _, err := store.Begin(context.Background(), identity(fmt.Sprint("slot-", i))); class(err) != "unknown" {
				t.Errorf("begin: %v", err)
			}
		})
	}
	gone.Wait()
	if s := store.Stats(); s.Active != 2 || s.CommandTimeouts != 2 {
		t.Fatalf("the callers have gone, their requests have not: %+v", s)
	}
	_, err = store.ReadStatus(t.Context(), identity("other"))
	if class(err) != "unavailable" || !errors.Is(err, ErrQueueDeadline) {
		t.Fatalf("beyond the slots: %v", err)
	}
	link.settle <- struct{}{}
	until(t, func() bool { return store.Stats().Active == 1 })
	close(link.settle)
	until(t, func() bool { return store.Stats().Active == 0 })
}

// deadlines is a connection that answers in turn, and notes by when it was to.
type deadlines struct {
	replies []string
	seen    []time.Time
}

func (d *deadlines) Run(ctx context.Context, op conn.Op, _ *conn.Script, _ []string, args ...any) (any, error) {
	op.InFlight(1)
	defer op.InFlight(-1)
	by, _ := ctx.Deadline()
	d.seen = append(d.seen, by)
	return fmt.Sprintf(d.replies[len(d.seen)-1], *args[2].(*string)), nil
}

// A Begin is one command with one deadline, also where its token turns out to be stale.
func TestABeginWithAStaleTokenHasOneDeadline(t *testing.T) {
	config, err := Config{Redis: validRedis()}.Settled()
	if err != nil {
		t.Fatal(err)
	}
	link := &deadlines{replies: []string{"stale_token%.0s", "acquired %s 30000 2 1"}}
	store := newStore(config, newTransport(link), semantic.SystemClock{}, nil)
	if r, err := store.Begin(t.Context(), identity("stale"), operation.WithToken(operation.NewToken())); err != nil || r.Outcome != operation.BeginAcquired {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(link.seen) != 2 || link.seen[0].IsZero() || !link.seen[0].Equal(link.seen[1]) {
		t.Fatalf("deadlines %v", link.seen)
	}
}

func TestTheCommandDeadlineIsCounted(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	o := open(t, proxy.Addr(), func(c *Config) { c.CommandDeadline = time.Second })
	begin(t, o, identity("warm"), operation.BeginAcquired)
	proxy.MuteNextReply(nil)
	start := time.Now()
	_, err := o.Begin(t.Context(), identity("muted"))
	if class(err) != "unknown" || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
		t.Fatalf("%v after %v", err, time.Since(start))
	}
	until(t, func() bool { s := o.Stats(); return s.Active == 0 && s.CommandTimeouts == 1 })
}

// enterAndLeave is what the gate adds to a command of one request.
func enterAndLeave(ctx context.Context, g *gate, request func(conn.Op)) error {
	if err := g.enter(ctx, 500); err != nil {
		return err
	}
	s := &slot{gate: g}
	s.add(1)
	defer s.add(-1)
	request(conn.Op{InFlight: s.add})
	return nil
}

// request does as the connection layer does.
var request = func(op conn.Op) {
	op.InFlight(1)
	op.InFlight(-1)
}

// BenchmarkGateUncontended is what the gate adds to a command that finds a free slot:
// at most 2 µs and 3 allocations.
func BenchmarkGateUncontended(b *testing.B) {
	g := newGate(Config{MaxActive: 64, MaxQueued: 1024, MaxQueuedBytes: 4 << 20, QueueDeadline: 250 * time.Millisecond}, semantic.SystemClock{})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if err := enterAndLeave(ctx, g, request); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTheGateAddsAtMostThreeAllocations(t *testing.T) {
	g, _ := testGate(64, 1024, 4<<20)
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		if err := enterAndLeave(ctx, g, request); err != nil {
			t.Fatal(err)
		}
	}); n > 3 {
		t.Fatalf("%v allocations", n)
	}
	if s := g.snapshot(); s.Active != 0 {
		t.Fatalf("a slot was kept: %+v", s)
	}
}
