package flight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
)

var (
	// ErrGroupClosed is what callers get from a closed group.
	ErrGroupClosed = errors.New("flight group is closed")
	// ErrLeft marks a context's error as that of the caller, not of the work.
	ErrLeft = errors.New("caller stopped waiting")
)

// Group runs the work of a key once for all callers that are there at the same time.
// The zero value is ready. Safe for concurrent use.
type Group struct {
	mu      sync.Mutex
	flights map[string]*flight
	flying  map[*flight]struct{} // those whose work has not returned, forgotten ones included
	idle    chan struct{}        // set by Close; closed when the last of them has returned
	closed  bool
}

// flight is one run of the work of a key.
type flight struct {
	done    chan struct{} // closed when value and err are final
	waiters int           // guarded by the group's mutex, as all below
	cancel  context.CancelCauseFunc
	known   bool // value is what the work will return; it has only to be stored
	shared  bool // more than one reads value
	value   []byte
	err     error
}

// Work produces the value of a key. It may call publish as soon as it has the value
// and only wants to store it: a caller whose context ends from then on gets the value.
type Work func(ctx context.Context, publish func(value []byte)) ([]byte, error)

// Do returns what work returns, or what the work of another caller of key returns that
// is running already. The work's context has the values of the first caller's, and ends
// when no caller waits any more or the group closes. Do returns early with ErrLeft and
// ctx's error or with ErrGroupClosed. Every caller gets a slice of its own.
//
// work must not panic; see [Call].
func (g *Group) Do(ctx context.Context, key string, work Work) ([]byte, error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, ErrGroupClosed
	}
	if err := ctx.Err(); err != nil {
		g.mu.Unlock()
		return nil, left(err)
	}
	f := g.flights[key]
	if f == nil {
		f = g.launch(ctx, key, work)
	} else {
		f.shared = true
	}
	f.waiters++
	g.mu.Unlock()

	select {
	case <-f.done:
	case <-ctx.Done():
		if value, known := g.leave(key, f); known {
			return value, nil
		}
		return nil, left(ctx.Err())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return f.result()
}

func left(err error) error { return fmt.Errorf("%w: %w", ErrLeft, err) }

// result is the caller's copy; the mutex is held.
func (f *flight) result() ([]byte, error) {
	if f.shared && f.value != nil {
		return bytes.Clone(f.value), f.err
	}
	return f.value, f.err
}

// launch starts the work; the mutex is held.
func (g *Group) launch(ctx context.Context, key string, work Work) *flight {
	if g.flights == nil {
		g.flights = map[string]*flight{}
		g.flying = map[*flight]struct{}{}
	}
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f := &flight{done: make(chan struct{}), cancel: cancel}
	g.flights[key] = f
	g.flying[f] = struct{}{}
	go func() {
		value, err := work(detached, func(value []byte) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if !g.closed {
				f.known, f.value = true, value
			}
		})
		cancel(nil)
		g.land(key, f, value, err)
	}()
	return f
}

// land hands the outcome to the callers.
func (g *Group) land(key string, f *flight, value []byte, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed { // else Close has answered the callers
		f.value, f.err = value, err
		close(f.done)
	}
	g.remove(key, f)
	delete(g.flying, f)
	if len(g.flying) == 0 && g.idle != nil {
		close(g.idle)
	}
}

// leave takes a caller out whose context has ended, and gives it the value if that is
// known. The last one to leave before that ends the work.
func (g *Group) leave(key string, f *flight) (value []byte, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.waiters--
	if f.known {
		f.shared = true // the work still reads it
		value, _ = f.result()
		return value, true
	}
	if f.waiters == 0 {
		g.remove(key, f)
		f.cancel(context.Canceled)
	}
	return nil, false
}

// remove keeps later callers from joining f; the mutex is held.
func (g *Group) remove(key string, f *flight) {
	if g.flights[key] == f {
		delete(g.flights, key)
	}
}

// Forget makes the next caller of each key start anew instead of joining work that
// began before. Those who have joined still get its outcome.
func (g *Group) Forget(keys ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		delete(g.flights, key)
	}
}

// Close answers every caller with ErrGroupClosed, now and from now on, cancels the work
// that is running and waits for it to return until ctx ends, whose error it then
// returns. Closing twice is fine.
func (g *Group) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.idle = make(chan struct{})
		for f := range g.flying {
			f.value, f.known, f.err = nil, false, ErrGroupClosed
			close(f.done)
			f.cancel(ErrGroupClosed)
		}
		g.flights = nil
		if len(g.flying) == 0 {
			close(g.idle)
		}
	}
	g.mu.Unlock()
	select {
	case <-g.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
