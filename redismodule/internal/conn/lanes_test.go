package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// outcome is what a request came to.
type outcome struct {
	reply any
	err   error
}

// occupied is a connection with one lane, which is busy until the trap is disarmed.
func occupied(t *testing.T) (*counted, *testkit.Trap, <-chan outcome) {
	t.Helper()
	return occupiedFor(t, later)
}

// occupiedFor lets others wait that long for its lane.
func occupiedFor(t *testing.T, patience time.Duration) (*counted, *testkit.Trap, <-chan outcome) {
	t.Helper()
	c := newCountedOf(t, later, 1)
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.lanes.patience = patience
	c.proxy.ResetCounts()
	trap := c.proxy.HoldNextReply(nil)
	first := c.start(t, t.Context(), "SET", "first", "v")
	<-trap.Hit()
	return c, trap, first
}

// start makes a request and returns once it is counted.
func (c *counted) start(t *testing.T, ctx context.Context, args ...any) <-chan outcome {
	t.Helper()
	before := c.inFlight.Load()
	done := make(chan outcome, 1)
	go func() {
		reply, err := c.do(ctx, args...)
		done <- outcome{reply, err}
	}()
	for c.inFlight.Load() == before {
		time.Sleep(100 * time.Microsecond)
	}
	c.waits(t, before)
	return done
}

// waits returns when all requests but the ones on their way wait for a lane.
func (c *counted) waits(t *testing.T, n int64) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		c.lanes.mu.Lock()
		waiting := int64(len(c.lanes.waiting))
		c.lanes.mu.Unlock()
		if waiting >= n {
			return
		}
		if time.Since(began) > later/2 {
			t.Fatalf("%d requests wait, want %d", waiting, n)
		}
	}
}

// get reads a key, or a field of one.
func (c *counted) get(t *testing.T, key string, field ...any) any {
	t.Helper()
	args := []any{"GET", key}
	if len(field) > 0 {
		args = []any{"HGET", key, field[0]}
	}
	reply, err := c.do(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func allUnavailable(t *testing.T, all []<-chan outcome) {
	t.Helper()
	for i, done := range all {
		if o := <-done; !errors.Is(o.err, semantic.ErrUnavailable) {
			t.Errorf("request %d: %v", i, o.err)
		}
	}
}

func TestRequestsThatWaitedGoTogetherAndEachGetsItsOwnReply(t *testing.T) {
	c, trap, first := occupied(t)
	var all []<-chan outcome
	for i := range 10 {
		all = append(all, c.start(t, t.Context(), "SET", fmt.Sprint("k", i), "v", "GET"))
	}
	wrong := c.start(t, t.Context(), "LPUSH", "k3", "v")
	absent := c.start(t, t.Context(), "GET", "nothing")
	last := c.start(t, t.Context(), "ECHO", "last")
	if n := c.proxy.Commands(); n != 1 {
		t.Fatalf("%d commands sent by one lane", n)
	}
	together := c.proxy.HoldNextReply(testkit.CommandContaining("k0"))
	trap.Disarm()
	<-together.Hit()
	for began := time.Now(); c.proxy.Commands() != 14; time.Sleep(time.Millisecond) {
		if time.Since(began) > later/2 {
			t.Fatalf("%d commands sent before the batch's first reply, want 14", c.proxy.Commands())
		}
	}
	together.Disarm()
	if o := <-first; o.err != nil {
		t.Error(o.err)
	}
	for i, done := range all {
		if o := <-done; o.err != nil || o.reply != nil {
			t.Errorf("%d: %v, %v", i, o.reply, o.err)
		}
	}
	if o := <-wrong; !errors.Is(o.err, semantic.ErrWrongType) {
		t.Error(o.err)
	}
	if o := <-absent; o.err != nil || o.reply != nil {
		t.Error(o.reply, o.err)
	}
	if o := <-last; o.err != nil || o.reply != "last" {
		t.Error(o.reply, o.err)
	}
	c.settles(t, 0)
}

func TestARequestThatIsLeftWhileItWaitsIsNeverSentAndSettlesAtOnce(t *testing.T) {
	c, trap, _ := occupied(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := c.start(t, ctx, "SET", "left", "v")
	stays := c.start(t, t.Context(), "SET", "stays", "v")
	cancel()
	if o := <-left; !errors.Is(o.err, semantic.ErrUnavailable) || !errors.Is(o.err, context.Canceled) {
		t.Fatal(o.err)
	}
	if n := c.inFlight.Load(); n != 2 {
		t.Fatalf("%d in flight, want the one on its way and the one that waits", n)
	}
	trap.Disarm()
	if o := <-stays; o.err != nil {
		t.Fatal(o.err)
	}
	if v := c.get(t, "left"); v != nil {
		t.Fatal("a request that its caller had left was sent")
	}
}

// redialing has three requests in a batch that has to dial anew and hears nothing until
// hello is disarmed, with the second one's caller gone meanwhile.
func redialing(t *testing.T) (c *counted, stay []<-chan outcome, hello *testkit.Trap) {
	t.Helper()
	c, trap, first := occupied(t)
	ctx, cancel := context.WithCancel(t.Context())
	stay = append(stay, c.start(t, t.Context(), "SET", "a", "v"))
	leaves := c.start(t, ctx, "SET", "b", "v")
	stay = append(stay, c.start(t, t.Context(), "SET", "c", "v"))
	hello = c.proxy.HoldNextReply(testkit.CommandNamed("HELLO"))
	c.proxy.Reset()
	trap.Disarm()
	if o := <-first; !errors.Is(o.err, semantic.ErrUnknown) {
		t.Fatal(o.err)
	}
	<-hello.Hit()
	cancel()
	if o := <-leaves; !errors.Is(o.err, semantic.ErrUnavailable) || !errors.Is(o.err, context.Canceled) {
		t.Fatal(o.err)
	}
	return c, stay, hello
}

func TestARequestThatIsLeftBeforeItsBatchIsWrittenIsNotSentWithIt(t *testing.T) {
	c, stay, hello := redialing(t)
	hello.Disarm()
	for _, done := range stay {
		if o := <-done; o.err != nil {
			t.Error(o.err)
		}
	}
	if a, b, c := c.get(t, "a"), c.get(t, "b"), c.get(t, "c"); a != "v" || b != nil || c != "v" {
		t.Errorf("a %v, b %v, c %v", a, b, c)
	}
	c.settles(t, later/2)
}

// A caller that has no context to end leaves when its timeout does.
func TestARequestThatIsLeftWithoutAnEndOfItsContextIsNotSentWithItsBatch(t *testing.T) {
	c := newCountedOf(t, later, 1)
	var batch []*request
	for _, key := range []string{"a", "b", "c"} {
		mark := &sendMark{ctx: context.Background(), arg: "v"}
		batch = append(batch, &request{
			ctx: t.Context(), client: c.open(false), mark: mark, args: []any{"SET", key, mark},
			settled: func() { c.inFlight.Add(1) }, done: make(chan struct{}, 1),
		})
	}
	if !batch[1].mark.abandon() {
		t.Fatal("not in time")
	}
	all := slices.Clone(batch)
	carry(batch)
	if n := c.inFlight.Load(); n != 3 {
		t.Errorf("%d requests settled", n)
	}
	if all[0].err != nil || !errors.Is(all[1].err, context.Canceled) || all[2].err != nil {
		t.Error(all[0].err, all[1].err, all[2].err)
	}
	if a, b, c := c.get(t, "a"), c.get(t, "b"), c.get(t, "c"); a != "v" || b != nil || c != "v" {
		t.Errorf("a %v, b %v, c %v", a, b, c)
	}
}

func TestABatchThatIsPackedAnewIsNotUnknownForThat(t *testing.T) {
	c, stay, hello := redialing(t)
	c.proxy.Refuse(true)
	hello.Disarm()
	allUnavailable(t, stay)
	c.settles(t, later/2)
}

func TestABatchThatIsCutKnowsWhatWasAnswered(t *testing.T) {
	c, trap, _ := occupied(t)
	var all []<-chan outcome
	for i := range 6 {
		all = append(all, c.start(t, t.Context(), "SETEX", fmt.Sprint("k", i), 100, "v"))
	}
	c.proxy.DropNextReply(testkit.CommandContaining("k3"))
	trap.Disarm()
	for i, done := range all {
		o := <-done
		switch {
		case i < 3 && o.err != nil:
			t.Errorf("answered request %d: %v", i, o.err)
		case i >= 3 && !errors.Is(o.err, semantic.ErrUnknown):
			t.Errorf("request %d, whose reply was lost: %v", i, o.err)
		}
	}
	c.settles(t, later/2)
}

func TestABatchThatCannotBeSentIsUnavailable(t *testing.T) {
	c, trap, _ := occupied(t)
	var all []<-chan outcome
	for i := range 6 {
		all = append(all, c.start(t, t.Context(), "SET", fmt.Sprint("k", i), "v"))
	}
	c.proxy.Refuse(true)
	c.proxy.Reset()
	trap.Disarm()
	allUnavailable(t, all)
	c.settles(t, 0)
}

func TestCloseAnswersWhatWaits(t *testing.T) {
	c, _, first := occupied(t)
	waits := c.start(t, t.Context(), "SET", "k", "v")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if o := <-first; !errors.Is(o.err, semantic.ErrUnknown) {
		t.Error(o.err)
	}
	if o := <-waits; !errors.Is(o.err, semantic.ErrClosed) {
		t.Error(o.err)
	}
	if n := c.inFlight.Load(); n != 0 {
		t.Errorf("%d in flight after Close", n)
	}
}

func TestNoMoreLanesThanConnections(t *testing.T) {
	for pool, want := range map[int]int{3: 3, 100: maxLanes} {
		c := newCountedOf(t, later, pool)
		c.proxy.Delay(5 * time.Millisecond)
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				op := Op{Name: "set", Key: "k", Small: true}
				if i%2 == 0 {
					op = Op{Name: "set", Key: "k", InFlight: func(int) {}}
				}
				if _, err := c.Do(t.Context(), op, "SET", "k", "v"); err != nil {
					t.Error(err)
				}
			})
		}
		done := make(chan struct{})
		go func() {
			all.Wait()
			close(done)
		}()
		most := 0
		for running := true; running; {
			c.lanes.mu.Lock()
			most = max(most, c.lanes.busy)
			c.lanes.mu.Unlock()
			select {
			case <-done:
				running = false
			case <-time.After(100 * time.Microsecond):
			}
		}
		if most != want {
			t.Errorf("%d lanes with a pool of %d, want %d", most, pool, want)
		}
	}
}

// Callers come and go at random while connections are cut: every
// reply is one's own, and what was said not to be applied is not.
func TestBatchesNeverMixUpRepliesNorOutcomes(t *testing.T) {
	c := newCountedOf(t, later, 2)
	seed := rand.Uint64()
	t.Log("seed", seed)
	c.proxy.Unreliable(testkit.Odds{Seed: seed, DropRequest: 0.002, DropReply: 0.002, HalveReply: 0.002})
	var applied, unavailable sync.Map
	var answered, lost, unsent atomic.Int64
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(g)))
			for i := range 150 {
				number := int64(1 + g*1000 + i)
				key := fmt.Sprint("k", number)
				ctx, cancel := context.WithTimeout(t.Context(), later)
				if dice.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(dice.IntN(4000))*time.Microsecond)
				}
				op := Op{Name: "add", Key: key, Small: true}
				if i%2 == 0 {
					op = Op{Name: "add", Key: key, InFlight: func(d int) { c.inFlight.Add(int64(d)) }}
				}
				reply, err := c.Do(ctx, op, "HINCRBY", "h", key, number)
				cancel()
				switch {
				case err == nil && reply != number:
					t.Errorf("%s got the reply of %v", key, reply)
				case err == nil:
					answered.Add(1)
					applied.Store(key, fmt.Sprint(number))
				case errors.Is(err, semantic.ErrUnavailable):
					unsent.Add(1)
					unavailable.Store(key, nil)
				case errors.Is(err, semantic.ErrUnknown):
					lost.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	c.proxy.Unreliable(testkit.Odds{})
	c.settles(t, later/2)
	t.Log("answered", answered.Load(), "unknown", lost.Load(), "unavailable", unsent.Load())
	if answered.Load() == 0 || lost.Load() == 0 || unsent.Load() == 0 {
		t.Error("an outcome was never seen")
	}
	for _, keys := range []*sync.Map{&applied, &unavailable} {
		keys.Range(func(key, want any) bool {
			if v := c.get(t, "h", key.(string)); v != want {
				t.Errorf("%v is %v, want %v", key, v, want)
			}
			return true
		})
	}
}

// waitIdle returns when no lane is busy any more.
func (ls *lanes) waitIdle(t *testing.T) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		ls.mu.Lock()
		busy := ls.busy
		ls.mu.Unlock()
		if busy == 0 {
			return
		}
		if time.Since(began) > later/2 {
			t.Fatalf("%d lanes are busy", busy)
		}
	}
}
