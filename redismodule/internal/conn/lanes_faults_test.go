package conn

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// The client library leaves the commands of a pipeline without an error when the server
// refuses its connection, which was once taken for success.
func TestABatchWhoseConnectionIsRefusedByTheServerIsUnavailable(t *testing.T) {
	server := testkit.StartRedis(t, testkit.WithRedisPassword("secret"))
	proxy := testkit.StartProxy(t, server.Addr())
	c := &counted{proxy: proxy, Command: NewCommand(Options{
		Mode: Standalone, Addresses: []string{proxy.Addr()}, Protocol: 3, PoolSize: 1, Password: "secret",
		DialTimeout: later, PoolTimeout: later, CommandTimeout: later,
	})}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	trap := proxy.HoldNextReply(nil)
	first := c.start(t, t.Context(), "SET", "first", "v")
	<-trap.Hit()
	server.Must("CONFIG", "SET", "requirepass", "another")
	var all []<-chan outcome
	for range 3 {
		all = append(all, c.start(t, t.Context(), "INCR", "n"))
	}
	proxy.Reset()
	trap.Disarm()
	if o := <-first; !errors.Is(o.err, semantic.ErrUnknown) {
		t.Error(o.err)
	}
	allUnavailable(t, all)
	c.settles(t, later/2)
}

// Batches go over the connections that everything else goes over, too.
func TestNoMoreConnectionsThanThePoolHas(t *testing.T) {
	for _, pool := range []int{1, 3} {
		c := newCountedOf(t, later, pool)
		c.proxy.Delay(2 * time.Millisecond)
		var all sync.WaitGroup
		var most atomic.Int64
		for i := range 48 {
			all.Go(func() {
				for range 5 {
					// Every third is one that shares no round trip.
					if _, err := c.Do(t.Context(), Op{Name: "echo", Key: "k", Small: i%3 > 0}, "ECHO", "v"); err != nil {
						t.Error(err)
					}
					n := int64(c.proxy.Connections())
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
				}
			})
		}
		all.Wait()
		if n := most.Load(); n < 1 || n > int64(pool) {
			t.Errorf("%d connections of a pool of %d", n, pool)
		}
	}
}

// dialing is a connection with one lane, and with a batch that begins to dial when the
// returned function is called: one request that stays, if it is to be, and leavers of them,
// of which leave says how many go during the next dial.
func dialing(t *testing.T, stays bool, leavers int, leave func(dial int) int) (dial func() (dials int), stay <-chan outcome) {
	t.Helper()
	proxy := testkit.StartProxy(t, testkit.StartEmbeddedRedis(t).Addr())
	goodbyes := make(chan func(), leavers)
	dials := 0
	c := &counted{proxy: proxy, Command: NewCommand(Options{
		Mode: Standalone, Addresses: []string{proxy.Addr()}, Protocol: 3, PoolSize: 1,
		DialTimeout: later, PoolTimeout: later, CommandTimeout: later,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			for range leave(dials) {
				select {
				case next := <-goodbyes:
					next()
				default:
				}
			}
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	trap := proxy.HoldNextReply(nil)
	first := c.start(t, t.Context(), "SET", "first", "v")
	<-trap.Hit()
	if stays {
		stay = c.start(t, t.Context(), "SET", "stays", "v")
	}
	for range leavers {
		ctx, cancel := context.WithCancel(t.Context())
		gone := c.start(t, ctx, "SET", "left", "v")
		goodbyes <- func() {
			cancel()
			<-gone
		}
	}
	return func() int {
		proxy.Reset()
		trap.Disarm()
		<-first
		c.settles(t, later/2)
		c.lanes.waitIdle(t)
		return dials - 1
	}, stay
}

// While each dial lasts another caller of the batch leaves: the one that stays is sent all
// the same, with the second dial at the latest.
func TestCallersThatLeaveOneByOneDoNotHoldUpABatch(t *testing.T) {
	dial, stay := dialing(t, true, 8, func(dial int) int { return min(dial, 1) })
	if n := dial(); n > 2 {
		t.Errorf("%d dials", n)
	}
	if o := <-stay; o.err != nil {
		t.Error(o.err)
	}
}

func TestABatchThatAllHaveLeftEnds(t *testing.T) {
	dial, _ := dialing(t, false, 8, func(dial int) int { return []int{0, 1, 8}[min(dial, 2)] })
	if n := dial(); n != 2 {
		t.Errorf("%d dials", n)
	}
}

// A caller may leave, told that its request may have been sent, while the batch turns out
// not to be.
func TestARequestThatWasLeftIsNotSentWithTheNextBatch(t *testing.T) {
	settled := 0
	q := &request{
		mark: &sendMark{ctx: t.Context(), arg: "v"}, settled: func() { settled++ }, done: make(chan struct{}, 1),
	}
	q.left.Store(true)
	if stay := staying([]*request{q}); len(stay) != 0 || settled != 1 || q.mark.write() {
		t.Errorf("%d stay, %d settled", len(stay), settled)
	}
}

// silentDial is a dialer whose dials end with their contexts.
func silentDial(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestADeadlineThatCannotBeCancelledEndsADialToo(t *testing.T) {
	c := NewCommand(Options{
		Mode: Standalone, Addresses: []string{"127.0.0.1:1"}, Protocol: 3, PoolSize: 4, Dial: silentDial,
		DialTimeout: later, PoolTimeout: later, CommandTimeout: later,
	})
	for _, op := range []Op{{Name: "small", Key: "k", Small: true}, {Name: "large", Key: "k"}} {
		began := time.Now()
		_, err := c.Do(endless{t.Context(), began.Add(soon)}, op, "SET", "k", "v")
		if !errors.Is(err, semantic.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", op.Name, err)
		}
		if took := time.Since(began); took > later/2 {
			t.Errorf("%s: %v", op.Name, took)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseCutsADial(t *testing.T) {
	c := NewCommand(Options{
		Mode: Standalone, Addresses: []string{"127.0.0.1:1"}, Protocol: 3, PoolSize: 1, Dial: silentDial,
		DialTimeout: later, PoolTimeout: later, CommandTimeout: later,
	})
	var all sync.WaitGroup
	var begun sync.WaitGroup
	for _, op := range []Op{{Name: "small", Key: "k", Small: true}, {Name: "small", Key: "k", Small: true}, {Name: "large", Key: "k"}} {
		begun.Add(1)
		all.Go(func() {
			begun.Done()
			if _, err := c.Do(context.Background(), op, "SET", "k", "v"); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", op.Name, err)
			}
		})
	}
	begun.Wait()
	for dialing := false; !dialing; time.Sleep(time.Millisecond) {
		c.mu.RLock()
		dialing = c.client != nil
		c.mu.RUnlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	began := time.Now()
	_ = c.Close(ctx)
	if took := time.Since(began); took > later/2 {
		t.Errorf("closed after %v", took)
	}
	all.Wait()
}

// A fan-out has one deadline for all of its calls.
func TestManyCallsMayShareADeadline(t *testing.T) {
	const calls = 30_000
	board := &switchboard{timeout: time.Minute}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end, _ := ctx.Deadline()
	began := time.Now()
	all := make([]*call, calls)
	for i := range all {
		all[i] = board.begin(ctx)
		if early := end.Sub(all[i].deadline); early < 0 || early > time.Millisecond {
			t.Fatalf("deadline %v early", early)
		}
	}
	for _, c := range all {
		if board.find(c.deadline) != c {
			t.Fatal("one call is taken for another")
		}
		board.end(c)
	}
	if took := time.Since(began); took > later/2 { // a minute and more when each looked for its place from the first
		t.Errorf("%d calls took %v", calls, took)
	}
}

// On a Cluster there is no limit to the lanes; what carried a burst goes after it.
func TestABurstLeavesNoMoreCarriersThanAreOfUse(t *testing.T) {
	c := newCountedOf(t, later, 1)
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.lanes.mu.Lock()
	c.lanes.limit = 0
	c.lanes.mu.Unlock()
	trap := c.proxy.HoldNextReply(nil)
	var all sync.WaitGroup
	for range 4 * maxLanes {
		all.Go(func() {
			if err := c.set(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for began := time.Now(); c.inFlight.Load() < 4*maxLanes && time.Since(began) < later/2; {
		time.Sleep(time.Millisecond)
	}
	<-trap.Hit()
	trap.Disarm()
	all.Wait()
	c.lanes.waitIdle(t)
	c.lanes.mu.Lock()
	defer c.lanes.mu.Unlock()
	if n := len(c.lanes.idle); n < 1 || n > maxLanes {
		t.Errorf("%d carriers rest, want at most %d", n, maxLanes)
	}
}
