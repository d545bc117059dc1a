package flight

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// held is work that blocks until release or its context's end.
func held(started chan<- struct{}, release <-chan struct{}, value string) Work {
	return func(ctx context.Context, _ func([]byte)) ([]byte, error) {
		close(started)
		select {
		case <-release:
			return []byte(value), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func never(t *testing.T) Work {
	return func(context.Context, func([]byte)) ([]byte, error) {
		t.Error("work ran")
		return nil, nil
	}
}

type outcome struct {
	value string
	err   error
}

func start(g *Group, ctx context.Context, key string, work Work) <-chan outcome {
	c := make(chan outcome, 1)
	go func() {
		v, err := g.Do(ctx, key, work)
		c <- outcome{string(v), err}
	}()
	return c
}

// joined waits until n callers wait for key.
func joined(t *testing.T, g *Group, key string, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		g.mu.Lock()
		f := g.flights[key]
		ok := f != nil && f.waiters == n
		g.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never %d callers of %q", n, key)
		}
		runtime.Gosched()
	}
}

func TestCallersShareOneRunAndGetTheirOwnSlices(t *testing.T) {
	var g Group
	started, release := make(chan struct{}), make(chan struct{})
	first := make(chan []byte, 1)
	go func() {
		v, _ := g.Do(t.Context(), "k", held(started, release, "v"))
		first <- v
	}()
	<-started
	second := make(chan []byte, 1)
	go func() {
		v, _ := g.Do(t.Context(), "k", never(t))
		second <- v
	}()
	joined(t, &g, "k", 2)
	close(release)
	a, b := <-first, <-second
	a[0] = 'x'
	if string(b) != "v" {
		t.Errorf("the second caller's slice is %q after the first changed its own", b)
	}
}

func TestTheFirstCallersCancelLeavesTheOthersTheirRun(t *testing.T) {
	var g Group
	started, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	leader := start(&g, ctx, "k", held(started, release, "v"))
	<-started
	other := start(&g, t.Context(), "k", never(t))
	joined(t, &g, "k", 2)
	cancel()
	if o := <-leader; !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, ErrLeft) {
		t.Errorf("leader: %v, want its own context's error", o.err)
	}
	close(release)
	if o := <-other; o.value != "v" || o.err != nil {
		t.Errorf("other: %+v, want the value", o)
	}
}

func TestWorkThatNobodyWaitsForEndsAndIsNotJoined(t *testing.T) {
	var g Group
	started := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	left := start(&g, ctx, "k", func(ctx context.Context, _ func([]byte)) ([]byte, error) {
		close(started)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	<-started
	cancel()
	<-left
	if v, err := g.Do(t.Context(), "k", func(context.Context, func([]byte)) ([]byte, error) { return []byte("new"), nil }); string(v) != "new" || err != nil {
		t.Errorf("the next caller: %q, %v, want work of its own", v, err)
	}
	<-ended
}

func TestACallerThatLeavesAfterThePublishGetsTheValue(t *testing.T) {
	var g Group
	published, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	storing := make(chan error, 1)
	caller := start(&g, ctx, "k", func(ctx context.Context, publish func([]byte)) ([]byte, error) {
		publish([]byte("v"))
		close(published)
		<-release
		storing <- ctx.Err()
		return []byte("v"), nil
	})
	<-published
	cancel()
	if o := <-caller; o.value != "v" || o.err != nil {
		t.Errorf("%+v, want the published value", o)
	}
	close(release)
	if err := <-storing; err != nil {
		t.Errorf("the work was cancelled while it stored: %v", err)
	}
}

func TestForgetMakesTheNextCallerStartAnew(t *testing.T) {
	var g Group
	started, release := make(chan struct{}), make(chan struct{})
	first := start(&g, t.Context(), "k", held(started, release, "old"))
	<-started
	g.Forget("k", "other")
	if v, _ := g.Do(t.Context(), "k", func(context.Context, func([]byte)) ([]byte, error) { return []byte("new"), nil }); string(v) != "new" {
		t.Errorf("after Forget: %q, want work of its own", v)
	}
	close(release)
	if o := <-first; o.value != "old" {
		t.Errorf("who had joined: %+v, want its run's value", o)
	}
}

func TestCloseAnswersEveryoneAndWaitsForTheWork(t *testing.T) {
	var g Group
	started, release := make(chan struct{}), make(chan struct{})
	caller := start(&g, t.Context(), "k", func(ctx context.Context, _ func([]byte)) ([]byte, error) {
		close(started)
		<-ctx.Done()
		<-release // slow to notice
		return nil, ctx.Err()
	})
	<-started
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Close(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Close while work runs: %v, want its context's error", err)
	}
	if o := <-caller; !errors.Is(o.err, ErrGroupClosed) {
		t.Errorf("caller: %v, want ErrGroupClosed at once", o.err)
	}
	if _, err := g.Do(t.Context(), "k", never(t)); !errors.Is(err, ErrGroupClosed) {
		t.Errorf("Do after Close: %v", err)
	}
	close(release)
	if err := g.Close(t.Context()); err != nil {
		t.Errorf("Close again: %v, want nil once the work has returned", err)
	}
}

func TestCloseOfAnIdleGroupReturnsAtOnce(t *testing.T) {
	var g Group
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCallTurnsAPanicAndAGoexitIntoAnError(t *testing.T) {
	cause := errors.New("boom")
	for name, fn := range map[string]func(context.Context) (int, error){
		"panic": func(context.Context) (int, error) { panic(cause) },
		"nil":   func(context.Context) (int, error) { panic(nil) },
		"exit":  func(context.Context) (int, error) { runtime.Goexit(); return 1, nil },
	} {
		_, err := Call(t.Context(), fn)
		var p *PanicError
		if !errors.As(err, &p) || (name == "panic" && !errors.Is(err, cause)) || (name == "exit") != (p.Stack == "") {
			t.Errorf("%s: %#v, want a PanicError", name, err)
		}
	}
	if v, err := Call(t.Context(), func(context.Context) (int, error) { return 7, cause }); v != 7 || err != cause {
		t.Errorf("a call that returns: %d, %v", v, err)
	}
}

// TestRandomComingAndGoing: whoever does not give up gets a value, at most one run of a
// key goes on at a time for those who wait, and nothing is left behind.
func TestRandomComingAndGoing(t *testing.T) {
	var g Group
	var runs atomic.Int64
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				go cancel()
			}
			v, err := g.Do(ctx, "k", func(ctx context.Context, publish func([]byte)) ([]byte, error) {
				runs.Add(1)
				runtime.Gosched()
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				publish([]byte("v"))
				return []byte("v"), nil
			})
			if i%3 != 0 && (string(v) != "v" || err != nil) {
				t.Errorf("a caller that stayed: %q, %v", v, err)
			}
			if i%7 == 0 {
				g.Forget("k")
			}
		})
	}
	all.Wait()
	if err := g.Close(t.Context()); err != nil || len(g.flying) != 0 || len(g.flights) != 0 {
		t.Errorf("left behind: %d runs, %d flights, %v", len(g.flying), len(g.flights), err)
	}
	t.Logf("%d runs for 400 callers", runs.Load())
}
