package conn

import (
	"context"
	"sync"
	"time"
)

const (
	// endingGrain is how much before its deadline a wait of endings may end.
	endingGrain = 20 * time.Millisecond
	// endingNear is how near an end is kept to itself, so that no wait loses much of its time.
	endingNear = 10 * endingGrain
)

// endings make a context that has a deadline but no Done end at it: the client library's
// waits for a connection heed only Done. A timer for each call costs more than all else that
// is done here for it, so calls with deadlines close to each other share the earliest's.
type endings struct {
	mu   sync.Mutex
	at   time.Time
	done chan struct{} // closed at that time
}

// of gives ctx with a Done that closes at end, or up to endingGrain before if that is
// further than endingNear.
func (e *endings) of(ctx context.Context, end time.Time) context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if after := end.Sub(e.at); e.done == nil || after < 0 || after > endingGrain || time.Until(e.at) < endingNear {
		done := make(chan struct{})
		time.AfterFunc(time.Until(end), func() { close(done) })
		e.at, e.done = end, done
	}
	return &ending{ctx, e.done}
}

// ending is a context of endings.
type ending struct {
	context.Context
	done chan struct{}
}

// Done implements context.Context.
func (e *ending) Done() <-chan struct{} { return e.done }

// Err implements context.Context.
func (e *ending) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return e.Context.Err()
	}
}
