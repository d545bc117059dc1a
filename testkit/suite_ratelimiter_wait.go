package testkit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

func limiterWaitCases() []limiterCase {
	type backend = Backend[semantic.RateLimiter]
	return []limiterCase{
		{Name: "Acquire takes what is there at once", Run: func(t T, b backend) {
			for _, limit := range algorithms(calm(10)) {
				l := b.New(t, 1)[0]
				if err := l.Acquire(t.Context(), "k", 6, limit); err != nil {
					t.Errorf("%v: Acquire: %v", limit.Algorithm, err)
				}
				if d := mustTake(t, l, "k", 1, limit); d.Remaining != 3 {
					t.Errorf("%v: %d left after 6 and 1 of 10, want 3", limit.Algorithm, d.Remaining)
				}
			}
		}},
		{Name: "Acquire waits until its tokens are there", Run: func(t T, b backend) {
			for _, limit := range algorithms(semantic.Limit{Max: 2, Window: 2 * span}) {
				ls := b.New(t, 2)
				mustTake(t, ls[0], "k", 2, limit)
				done := make(chan error, 1)
				go func() { done <- ls[1].Acquire(t.Context(), "k", 2, limit) }()
				waitUntilAsked(b)
				if !passes(b, done, 5*limit.Window, func(err error) {
					if err != nil {
						t.Errorf("%v: Acquire: %v", limit.Algorithm, err)
					}
				}) {
					t.Fatalf("%v: Acquire still waits five windows later", limit.Algorithm)
				}
			}
		}},
		{Name: "Acquire never admits more than the window allows", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			limit := semantic.Limit{Max: 3, Window: 2 * span}
			var mu sync.Mutex
			admitted := 0
			done := make(chan error, 9)
			for i := range 9 {
				go func() {
					err := ls[i%2].Acquire(t.Context(), "k", 1, limit)
					mu.Lock()
					admitted++
					mu.Unlock()
					done <- err
				}()
			}
			start := time.Now()
			waitUntilAsked(b)
			mu.Lock()
			if admitted > 3 && time.Since(start) < limit.Window {
				t.Errorf("%d of 3 admitted in the first window", admitted)
			}
			mu.Unlock()
			for i := range 9 {
				if !passes(b, done, 5*limit.Window, func(err error) {
					if err != nil {
						t.Errorf("Acquire: %v", err)
					}
				}) {
					t.Fatalf("only %d of 9 admitted in time", i)
				}
			}
		}},
		{Name: "Acquire serves first come, first served", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			limit := semantic.Limit{Max: 1, Window: span}
			mustTake(t, l, "k", 1, limit)
			const callers = 6
			served := make(chan int, callers)
			for i := range callers {
				go func() {
					if err := l.Acquire(t.Context(), "k", 1, limit); err != nil {
						t.Errorf("Acquire: %v", err)
					}
					served <- i
				}()
				waitUntilAsked(b) // so that they come one after the other
			}
			var order []int
			for range callers {
				if !passes(b, served, 5*limit.Window, func(i int) { order = append(order, i) }) {
					t.Fatalf("only %v served in time", order)
				}
			}
			if !slices.IsSorted(order) {
				t.Errorf("served in the order %v, want that of coming", order)
			}
		}},
		{Name: "a cancelled Acquire returns at once and gives its place up", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			limit := semantic.Limit{Max: 1, Window: 2 * span}
			mustTake(t, l, "k", 1, limit)
			head, cancelHead := context.WithCancel(t.Context())
			second, cancelSecond := context.WithCancel(t.Context())
			headDone, secondDone, third := make(chan error, 1), make(chan error, 1), make(chan error, 1)
			go func() { headDone <- l.Acquire(head, "k", 1, limit) }()
			waitUntilAsked(b)
			go func() { secondDone <- l.Acquire(second, "k", 1, limit) }()
			waitUntilAsked(b)
			go func() { third <- l.Acquire(t.Context(), "k", 1, limit) }()
			waitUntilAsked(b)
			cancelSecond()
			if err := receive(t, secondDone, "a cancelled waiter to return"); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled waiter: %v, want its context's error", err)
			}
			cancelHead()
			if err := receive(t, headDone, "the cancelled head to return"); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled head: %v, want its context's error", err)
			}
			// One window is enough: those who have gone do not use one up.
			if !passes(b, third, limit.Window+span, func(err error) {
				if err != nil {
					t.Errorf("the one behind: %v", err)
				}
			}) {
				t.Errorf("the one behind is not served in the next window after those before it have gone")
			}
		}},
		{Name: "after close every method says ErrClosed, also to those who wait", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			closable, ok := l.(interface{ Close() })
			if !ok {
				t.Logf("not run: this client cannot be closed by itself")
				return
			}
			limit := calm(1)
			mustTake(t, l, "k", 1, limit)
			mustTake(t, l, "k", 1, limit) // the budget is now known to be spent
			done := make(chan error, 2)
			for range 2 { // the head of the line and one behind it
				go func() { done <- l.Acquire(t.Context(), "k", 1, limit) }()
			}
			waitUntilAsked(b)
			closable.Close()
			for range 2 {
				if err := receive(t, done, "a waiting caller to return"); !errors.Is(err, semantic.ErrClosed) {
					t.Errorf("a caller that was waiting: %v, want ErrClosed", err)
				}
			}
			if d, err := l.TryAcquire(t.Context(), "k", 1, limit); d.Allowed || !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("TryAcquire after close: %+v, %v, want ErrClosed", d, err)
			}
			if err := l.Acquire(t.Context(), "k", 1, limit); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("Acquire after close: %v, want ErrClosed", err)
			}
		}},
		{Name: "an ended context takes nothing", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			limit := calm(2)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if d, err := l.TryAcquire(ended, "k", 1, limit); d.Allowed || !errors.Is(err, context.Canceled) {
				t.Errorf("TryAcquire: %+v, %v, want the context's error", d, err)
			}
			if err := l.Acquire(ended, "k", 1, limit); !errors.Is(err, context.Canceled) {
				t.Errorf("Acquire: %v, want the context's error", err)
			}
			if d := mustTake(t, l, "k", 2, limit); !d.Allowed {
				t.Errorf("an ended context has taken tokens: %+v", d)
			}
		}},
		{Name: "an outage sends everybody in line home", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			limit := semantic.Limit{Max: 1, Window: 2 * span}
			mustTake(t, l, "k", 1, limit)
			done := make(chan error, 20)
			for range 20 {
				go func() { done <- l.Acquire(t.Context(), "k", 1, limit) }()
			}
			waitUntilAsked(b)
			defer b.Fault(t, FaultDown)()
			failed := 0
			for i := range 20 {
				if !passes(b, done, 5*limit.Window, func(err error) {
					switch {
					case errors.Is(err, semantic.ErrUnavailable):
						failed++
					case err != nil:
						t.Errorf("Acquire: %v, want ErrUnavailable", err)
					}
				}) {
					t.Fatalf("only %d of 20 came home", i)
				}
			}
			if failed < 19 { // one may have been admitted before the outage
				t.Errorf("%d of 20 failed, want all that were not served before", failed)
			}
		}},
	}
}

// passes lets time go by in small steps until c gives a value or most has passed, and
// tells which.
func passes[S, V any](b Backend[S], c <-chan V, most time.Duration, got func(V)) bool {
	const step = 20 * time.Millisecond
	for range int(most/step) + 1 {
		select {
		case v := <-c:
			got(v)
			return true
		default:
		}
		b.Advance(step)
		// What a step has woken takes a moment of real time.
		select {
		case v := <-c:
			got(v)
			return true
		case <-time.After(2 * time.Millisecond):
		}
	}
	select {
	case v := <-c:
		got(v)
		return true
	case <-time.After(5 * time.Second):
		return false
	}
}
