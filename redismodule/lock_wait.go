package redismodule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// pollInterval is how often a waiter asks although nothing has woken it. The wake-up
// is a hint: a wait ends with polling alone as well.
const pollInterval = time.Second

// listenFunc delivers the messages of channel to s until cancel is called, and returns
// once the server has confirmed the subscription. It is [hub.subscribe].
type listenFunc func(ctx context.Context, channel string, s sink) (cancel func(), err error)

// wait acquires a lock within the caller's wait. The waiters of one process stand in
// line, first come first served, and only the first of them asks the server.
func (l *DistributedLockService) wait(ctx context.Context, a *acquisition) (semantic.LockClaim, error) {
	claim := semantic.LockClaim{Reason: semantic.ReasonContended}
	end := time.Now().Add(a.options.Wait)
	giveUp := time.NewTimer(a.options.Wait)
	defer giveUp.Stop()

	w := l.room.join(a.key)
	defer l.room.leave(a.key, w)
	select {
	case <-w.turn:
	case <-giveUp.C:
		return l.try(ctx, a) // nobody has asked for this caller yet
	case <-ctx.Done():
		return l.try(ctx, a) // which says that nothing was sent
	case <-l.stop.Done():
		return l.closed(a.key)
	}
	for asked := false; ; asked = true {
		if a.compensated {
			a = l.newAcquisition(a.key, a.ttl, a.options)
		}
		answer, err := l.try(ctx, a)
		switch {
		case asked && err != nil && ctx.Err() != nil: // what is known is that it was contended
			return claim, stillContended(a.key, err)
		case answer.Reason != semantic.ReasonContended:
			return answer, err
		}
		claim = answer
		next := time.Now().Add(nextPoll(claim.RetryAfter))
		if l.room.listen(ctx, min(pollInterval, time.Until(end)), a.key, l.freedChannel(a.key), w.line) {
			continue // it may have been freed before the subscription was confirmed
		}
		poll := time.NewTimer(time.Until(next))
		select {
		case <-w.line.freed:
		case <-poll.C:
		case <-giveUp.C:
			poll.Stop()
			return claim, nil
		case <-ctx.Done():
			poll.Stop()
			return claim, stillContended(a.key, ctx.Err())
		case <-l.stop.Done():
			poll.Stop()
			return l.closed(a.key)
		}
		poll.Stop()
	}
}

// closed is the answer of a lock that was closed while somebody waited for it.
func (l *DistributedLockService) closed(key string) (semantic.LockClaim, error) {
	return semantic.LockClaim{Reason: semantic.ReasonUnavailable}, fmt.Errorf("lock.acquire %q: %w", key, semantic.ErrClosed)
}

// nextPoll is a little after the holder's TTL, or about pollInterval. The jitter keeps
// the replicas apart.
func nextPoll(holderLeft time.Duration) time.Duration {
	if holderLeft > 0 && holderLeft < pollInterval {
		return holderLeft + time.Millisecond + rand.N(5*time.Millisecond)
	}
	return pollInterval*4/5 + rand.N(pollInterval*2/5)
}

// waitRoom has the lines of this process, one for each key that somebody waits for.
type waitRoom struct {
	subscribe listenFunc

	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	waiters []*waiter     // the first one has its turn
	freed   chan struct{} // of capacity 1: the lock was released somewhere
	cancel  func()        // ends the subscription; nil without one
}

// onMessage wakes the first in line; it is the [sink] of the line's channel.
func (ln *line) onMessage(string) {
	select {
	case ln.freed <- struct{}{}:
	default:
	}
}

// onGap wakes the first in line: a release may have been missed.
func (ln *line) onGap(time.Duration) { ln.onMessage("") }

type waiter struct {
	line *line
	turn chan struct{} // closed when the waiter is the first
}

func newWaitRoom(subscribe listenFunc) *waitRoom {
	return &waitRoom{subscribe: subscribe, lines: map[string]*line{}}
}

func (r *waitRoom) join(key string) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	ln := r.lines[key]
	if ln == nil {
		ln = &line{freed: make(chan struct{}, 1)}
		r.lines[key] = ln
	}
	w := &waiter{line: ln, turn: make(chan struct{})}
	if ln.waiters = append(ln.waiters, w); len(ln.waiters) == 1 {
		close(w.turn)
	}
	return w
}

func (r *waitRoom) leave(key string, w *waiter) {
	r.mu.Lock()
	ln := w.line
	i := slices.Index(ln.waiters, w)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	var cancel func()
	switch {
	case len(ln.waiters) == 0:
		delete(r.lines, key)
		cancel = ln.cancel
	case i == 0:
		close(ln.waiters[0].turn)
	}
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// listen subscribes the line to the releases of its lock, within patience, and tells
// whether it was not subscribed before and now is. Only the first in line calls it.
func (r *waitRoom) listen(ctx context.Context, patience time.Duration, key, channel string, ln *line) bool {
	if r.subscribe == nil || ln.cancel != nil {
		return false
	}
	ctx, cancelWait := context.WithTimeout(ctx, patience)
	defer cancelWait()
	cancel, err := r.subscribe(ctx, channel, ln)
	if err != nil {
		return false // polling goes on
	}
	r.mu.Lock()
	ln.cancel = cancel
	r.mu.Unlock()
	return true
}
