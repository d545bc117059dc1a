package waitline

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// Operation is the name of a blocking take in errors.
const Operation = "limiter.acquire"

// Lines keeps one line for each budget of a key. Safe for concurrent use.
type Lines struct {
	clock  semantic.Clock
	jitter time.Duration

	mu     sync.Mutex
	lines  map[budget]*list.List // of *place; the front is the head
	closed chan struct{}
	once   sync.Once
}

// budget is what one line waits for.
type budget struct {
	key   string
	limit semantic.Limit
}

// place is one caller in line.
type place struct {
	turn chan error // nil: at the head; an error: the line was sent home
}

// New returns Lines without anybody in them, whose waits go by clock. Up to jitter is
// added to a wake-up, so that the heads of many processes that wait for the same window
// do not ask in the same instant.
func New(clock semantic.Clock, jitter time.Duration) *Lines {
	return &Lines{clock: clock, jitter: jitter, lines: map[budget]*list.List{}, closed: make(chan struct{})}
}

// Acquire stands in line for limit's budget of key and, at its head, calls try until it
// admits: at once, and then whenever the denial said that it can. It returns try's
// error, ctx's, or [semantic.ErrClosed]; whichever way, its place is given up.
//
// A failure that says that nothing was applied holds for everybody in line, so that a
// thousand callers do not ask a dead backend one after the other.
func (l *Lines) Acquire(ctx context.Context, key string, limit semantic.Limit, try func(context.Context) (semantic.Decision, error)) error {
	b := budget{key, limit}
	me, at := l.enter(b)
	defer l.leave(b, at)
	select {
	case err := <-me.turn:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ended(ctx, key)
	case <-l.closed:
		return closed(key)
	}
	for {
		d, err := try(ctx)
		if err != nil {
			if ctx.Err() == nil && concernsAll(err) {
				l.sendHome(b, err)
			}
			return err
		}
		if d.Allowed {
			return nil
		}
		if err := l.sleep(ctx, key, d.RetryAfter); err != nil {
			return err
		}
	}
}

// Waiting returns how many callers stand in line for limit's budget of key, the head
// included.
func (l *Lines) Waiting(key string, limit semantic.Limit) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.lines[budget{key, limit}]; line != nil {
		return line.Len()
	}
	return 0
}

// Close ends every wait with [semantic.ErrClosed], now and from now on.
func (l *Lines) Close() { l.once.Do(func() { close(l.closed) }) }

func (l *Lines) enter(b budget) (*place, *list.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[b]
	if line == nil {
		line = list.New()
		l.lines[b] = line
	}
	me := &place{turn: make(chan error, 1)}
	at := line.PushBack(me)
	if line.Len() == 1 {
		me.turn <- nil
	}
	return me, at
}

// leave gives a place up and, if it was the head, lets the next one move there.
func (l *Lines) leave(b budget, at *list.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[b]
	if line == nil {
		return // sent home
	}
	head := line.Front() == at
	line.Remove(at)
	if line.Len() == 0 {
		delete(l.lines, b)
		return
	}
	if head {
		line.Front().Value.(*place).turn <- nil
	}
}

// sendHome fails all who stand behind the head, and leaves no line.
func (l *Lines) sendHome(b budget, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[b]
	for at := line.Front().Next(); at != nil; at = at.Next() {
		at.Value.(*place).turn <- err
	}
	delete(l.lines, b)
}

// sleep waits until a denial's RetryAfter has passed.
func (l *Lines) sleep(ctx context.Context, key string, d time.Duration) error {
	wake := make(chan struct{})
	stop := l.clock.AfterFunc(d+l.someJitter(d), func() { close(wake) })
	defer stop()
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ended(ctx, key)
	case <-l.closed:
		return closed(key)
	}
}

// someJitter is small against the wait it is added to.
func (l *Lines) someJitter(d time.Duration) time.Duration {
	return rand.N(min(l.jitter, d/8) + 1)
}

// concernsAll tells whether err would have met everybody in line alike.
func concernsAll(err error) bool {
	return errors.Is(err, semantic.ErrUnavailable) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

func ended(ctx context.Context, key string) error {
	return fmt.Errorf("%s %q: still waiting: %w", Operation, key, ctx.Err())
}

func closed(key string) error {
	return fmt.Errorf("%s %q: %w", Operation, key, semantic.ErrClosed)
}
