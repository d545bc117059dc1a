package waitline_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/waitline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var limit = semantic.PerSecond(1)

// gate is a try that admits as many as it is told to.
type gate struct {
	ask   chan struct{}
	reply chan func() (semantic.Decision, error)
}

func newGate() *gate {
	return &gate{make(chan struct{}), make(chan func() (semantic.Decision, error))}
}

func (g *gate) try(ctx context.Context) (semantic.Decision, error) {
	select {
	case g.ask <- struct{}{}:
	case <-ctx.Done():
		return semantic.Decision{}, ctx.Err()
	}
	return (<-g.reply)()
}

func admit() (semantic.Decision, error) { return semantic.Decision{Allowed: true}, nil }
func deny() (semantic.Decision, error) {
	return semantic.Decision{RetryAfter: time.Millisecond}, nil
}

func waiting(t *testing.T, l *waitline.Lines, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); l.Waiting("k", limit) != n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never %d in line", n)
		}
	}
}

// stand puts n callers in line, one after the other.
func stand(t *testing.T, l *waitline.Lines, g *gate, ctx context.Context, n int) chan int {
	served := make(chan int, n)
	for i := range n {
		before := l.Waiting("k", limit)
		go func() {
			if err := l.Acquire(ctx, "k", limit, g.try); err == nil {
				served <- i
			}
		}()
		waiting(t, l, before+1)
	}
	return served
}

func TestOnlyTheHeadAsksAndThePlaceBehindItIsServedNext(t *testing.T) {
	l, g := waitline.New(semantic.SystemClock{}, time.Millisecond), newGate()
	served := stand(t, l, g, t.Context(), 5)
	for want := range 5 {
		<-g.ask
		select {
		case <-g.ask:
			t.Fatal("two ask at the same time")
		default:
		}
		g.reply <- deny
		<-g.ask // the same one again, after its RetryAfter
		g.reply <- admit
		if got := <-served; got != want {
			t.Errorf("served %d, want %d: first come, first served", got, want)
		}
	}
	waiting(t, l, 0)
}

func TestAFailureThatConcernsAllSendsTheLineHome(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		all  bool
	}{
		{"unavailable", semantic.ErrUnavailable, true},
		{"unknown", semantic.ErrUnknown, false},
		{"the head's own context", errors.Join(semantic.ErrUnavailable, context.DeadlineExceeded), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, g := waitline.New(semantic.SystemClock{}, 0), newGate()
			failed := make(chan error, 3)
			for i := range 3 {
				go func() { failed <- l.Acquire(t.Context(), "k", limit, g.try) }()
				waiting(t, l, i+1)
			}
			<-g.ask
			g.reply <- func() (semantic.Decision, error) { return semantic.Decision{}, c.err }
			if err := <-failed; !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
			if !c.all {
				for range 2 { // the others ask for themselves
					<-g.ask
					g.reply <- admit
				}
			}
			for range 2 {
				if err := <-failed; (err != nil) != c.all {
					t.Errorf("another in line: %v", err)
				}
			}
			waiting(t, l, 0)
		})
	}
}

func TestWhoLeavesGivesTheirPlaceUp(t *testing.T) {
	l, g := waitline.New(semantic.SystemClock{}, 0), newGate()
	ctx, cancel := context.WithCancel(t.Context())
	gone := stand(t, l, g, ctx, 2)
	served := stand(t, l, g, t.Context(), 1)
	cancel()
	waiting(t, l, 1)
	<-g.ask
	g.reply <- admit
	<-served
	if len(gone) != 0 {
		t.Error("a cancelled caller was served")
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	l := waitline.New(semantic.SystemClock{}, 0)
	done := make(chan error, 3)
	for i := range 3 {
		go func() {
			done <- l.Acquire(t.Context(), "k", limit, func(context.Context) (semantic.Decision, error) {
				return semantic.Decision{RetryAfter: time.Hour}, nil
			})
		}()
		waiting(t, l, i+1)
	}
	l.Close()
	l.Close()
	for range 3 {
		if err := <-done; !errors.Is(err, semantic.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
}
