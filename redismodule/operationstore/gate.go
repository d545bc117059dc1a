package operationstore

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// Why the gate kept a command back; each is the cause of an
// [operation.UnavailableError].
var (
	// ErrQueueFull: as many commands, or as many bytes of them, waited as may.
	ErrQueueFull = errors.New("dispatch queue is full")
	// ErrQueueDeadline: no slot was free within the queue deadline.
	ErrQueueDeadline = errors.New("no dispatch slot within the queue deadline")
)

// Stats are the gate's statistics. The first three are of this moment, the others
// count from the start.
type Stats struct {
	Active          int    // commands that have a slot, those included that timed out and have not settled
	Queued          int    // commands that wait for one
	QueuedBytes     int    // their keys and arguments
	Dispatched      uint64 // commands that got a slot
	Rejected        uint64 // commands refused because the queue was full
	Expired         uint64 // commands that waited longer than the queue deadline
	Cancelled       uint64 // commands whose context ended while they waited
	CommandTimeouts uint64 // commands that had a slot and outlasted the command deadline, or their context's
}

// gate bounds how many commands are with Redis at once, and how many and how large
// ones wait. First come, first served. A command leaves it when it has settled,
// however long ago the one who asked for it has gone.
type gate struct {
	clock     semantic.Clock
	maxActive int
	maxQueued int
	maxBytes  int
	queueWait time.Duration

	mu     sync.Mutex
	queue  list.List // of *waiter, oldest first
	stats  Stats
	closed bool
}

type waiter struct {
	size  int
	ready chan error // nil: the slot is yours
	gone  bool       // answered
}

func newGate(c Config, clock semantic.Clock) *gate {
	return &gate{
		clock: clock, maxActive: c.MaxActive, maxQueued: c.MaxQueued,
		maxBytes: c.MaxQueuedBytes, queueWait: c.QueueDeadline,
	}
}

// enter waits for a slot until the queue deadline or until ctx ends. After nil, leave
// must be called once.
func (g *gate) enter(ctx context.Context, size int) error {
	g.mu.Lock()
	switch {
	case g.closed:
		g.mu.Unlock()
		return semantic.ErrClosed
	case ctx.Err() != nil:
		g.mu.Unlock()
		return ctx.Err()
	case g.stats.Active < g.maxActive: // then nobody waits: slots are handed over
		g.stats.Active++
		g.stats.Dispatched++
		g.mu.Unlock()
		return nil
	case g.queue.Len() >= g.maxQueued || g.stats.QueuedBytes+size > g.maxBytes:
		g.stats.Rejected++
		g.mu.Unlock()
		return ErrQueueFull
	}
	w := &waiter{size: size, ready: make(chan error, 1)}
	at := g.queue.PushBack(w)
	g.stats.QueuedBytes += size
	g.mu.Unlock()

	stop := g.clock.AfterFunc(g.queueWait, func() { g.dismiss(at, ErrQueueDeadline, &g.stats.Expired) })
	defer stop()
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
		g.dismiss(at, ctx.Err(), &g.stats.Cancelled)
		return <-w.ready // nil when the slot came first
	}
}

// leave hands the slot to the one who has waited longest, or frees it.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if head := g.queue.Front(); head != nil {
		g.stats.Dispatched++
		g.answer(head, nil)
		return
	}
	g.stats.Active--
}

// dismiss ends the wait of the waiter at with err, unless it was answered before.
func (g *gate) dismiss(at *list.Element, err error, count *uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !at.Value.(*waiter).gone {
		*count++
		g.answer(at, err)
	}
}

// answer is called with the mutex held.
func (g *gate) answer(at *list.Element, err error) {
	w := g.queue.Remove(at).(*waiter)
	w.gone = true
	g.stats.QueuedBytes -= w.size
	w.ready <- err
}

// timedOut counts a command that had a slot and outlasted its deadline.
func (g *gate) timedOut() {
	g.mu.Lock()
	g.stats.CommandTimeouts++
	g.mu.Unlock()
}

func (g *gate) snapshot() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Queued = g.queue.Len()
	return s
}

// close refuses new commands and dismisses those that wait.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for at := g.queue.Front(); at != nil; at = g.queue.Front() {
		g.answer(at, semantic.ErrClosed)
	}
}
