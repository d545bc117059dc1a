package conn

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// TestMain excuses the client library's search for a server that is gone: where as many
// dials have failed as the pool has connections, it ends up to a second after the close.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

const (
	soon  = 60 * time.Millisecond
	later = 20 * time.Second
)

// counted is a connection through a proxy whose calls are counted while in flight.
type counted struct {
	*Command
	proxy    *testkit.Proxy
	inFlight atomic.Int64
}

func newCounted(t *testing.T, timeout time.Duration) *counted {
	t.Helper()
	return newCountedOf(t, timeout, 4)
}

// newCountedOf has that many lanes.
func newCountedOf(t *testing.T, timeout time.Duration, pool int) *counted {
	t.Helper()
	proxy := testkit.StartProxy(t, testkit.StartEmbeddedRedis(t).Addr())
	c := &counted{proxy: proxy, Command: NewCommand(Options{
		Mode: Standalone, Addresses: []string{proxy.Addr()}, Protocol: 3, PoolSize: pool,
		DialTimeout: later, PoolTimeout: later, CommandTimeout: timeout,
	})}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (c *counted) do(ctx context.Context, args ...any) (any, error) {
	return c.Do(ctx, Op{Name: "do", Key: "k", InFlight: func(d int) { c.inFlight.Add(int64(d)) }}, args...)
}

func (c *counted) set(ctx context.Context) error {
	_, err := c.do(ctx, "SET", "k", "v")
	return err
}

// leave calls and cancels once the trap is hit, and demands a prompt answer.
func (c *counted) leave(t *testing.T, trap *testkit.Trap) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-trap.Hit()
		cancel()
	}()
	began := time.Now()
	if err := c.set(ctx); !errors.Is(err, semantic.ErrUnknown) || !errors.Is(err, context.Canceled) || time.Since(began) > later/2 {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
}

func (c *counted) settles(t *testing.T, within time.Duration) {
	t.Helper()
	for began := time.Now(); c.inFlight.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > within {
			t.Fatalf("%d in flight after %v", c.inFlight.Load(), within)
		}
	}
}

func TestARequestThatItsCallerLeftSettlesWhenTheServerAnswers(t *testing.T) {
	c := newCounted(t, later)
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	trap := c.proxy.HoldNextReply(nil)
	c.leave(t, trap)
	if n := c.inFlight.Load(); n != 1 {
		t.Fatalf("%d in flight while the server works", n)
	}
	if err := c.set(t.Context()); err != nil { // on another connection
		t.Fatal(err)
	}
	trap.Disarm()
	c.settles(t, later/2)
}

func TestARequestThatOutlastsItsDeadlineSettlesWhenTheServerAnswers(t *testing.T) {
	for name, within := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"of a context that ends": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, soon)
		},
		"of one that does not": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return endless{ctx, time.Now().Add(soon)}, func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounted(t, later)
			if err := c.set(t.Context()); err != nil {
				t.Fatal(err)
			}
			trap := c.proxy.HoldNextReply(nil)
			ctx, cancel := within(t.Context())
			defer cancel()
			if err := c.set(ctx); !errors.Is(err, semantic.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if n := c.inFlight.Load(); n != 1 {
				t.Fatalf("%d in flight while the server works", n)
			}
			trap.Disarm()
			c.settles(t, later/2)
		})
	}
}

func TestARequestWithoutAnAnswerSettlesWithItsTimeout(t *testing.T) {
	c := newCounted(t, 10*soon)
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.leave(t, c.proxy.MuteNextReply(nil))
	if n := c.inFlight.Load(); n != 1 {
		t.Fatalf("%d in flight while the server works", n)
	}
	c.settles(t, later/2)
}

func TestARequestThatWasNotSentIsUnavailableAndSettlesWithItsTimeout(t *testing.T) {
	c := newCounted(t, 10*soon)
	c.proxy.BlackHole(true)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := c.set(ctx); !errors.Is(err, semantic.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	c.settles(t, later/2)
}

func TestCloseWaitsForALateReplyUntilItsContextEnds(t *testing.T) {
	c := newCounted(t, later)
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.leave(t, c.proxy.MuteNextReply(nil))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	began := time.Now()
	if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > later/2 {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	if n := c.inFlight.Load(); n != 0 {
		t.Fatalf("%d in flight after Close", n)
	}
}

func TestNothingIsLostBetweenAnswersAndCancels(t *testing.T) {
	c := newCounted(t, later)
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%30)*20*time.Microsecond)
		_ = c.set(ctx)
		cancel()
	}
	c.settles(t, later/2)
}
