package testkit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// LockBackend is the memory that the clients of a [DistributedLock] double share.
// Safe for concurrent use.
type LockBackend struct {
	injector
	clock semantic.Clock

	mu     sync.Mutex
	held   map[string]*heldLock
	fences map[string]semantic.Fence
	freed  map[string]chan struct{} // closed when the key is released
	tokens int
}

type heldLock struct {
	token, client string
	expires, keep time.Time // keep: the end of the minimum hold
}

// NewLockBackend returns an empty backend; a nil clock is the system's.
func NewLockBackend(clock semantic.Clock) *LockBackend {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &LockBackend{
		clock: clock, held: map[string]*heldLock{}, fences: map[string]semantic.Fence{},
		freed: map[string]chan struct{}{},
	}
}

// Client returns the lock as the replica named name has it.
func (b *LockBackend) Client(name string) *DistributedLock {
	return &DistributedLock{backend: b, name: name}
}

// Holder returns the name of the client that holds key, "" for none. It is for
// assertions and takes nothing.
func (b *LockBackend) Holder(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.live(key); h != nil {
		return h.client
	}
	return ""
}

// Keys returns how many keys are held.
func (b *LockBackend) Keys() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for key := range b.held {
		if b.live(key) != nil {
			n++
		}
	}
	return n
}

// live returns the unexpired holder of key; the mutex is held.
func (b *LockBackend) live(key string) *heldLock {
	h := b.held[key]
	if h == nil || !b.clock.Now().Before(h.expires) {
		delete(b.held, key)
		return nil
	}
	return h
}

// take applies one acquire.
func (b *LockBackend) take(key, client, token string, ttl time.Duration, o semantic.LockOptions) (semantic.Fence, time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if h := b.live(key); h != nil {
		return 0, h.expires.Sub(now), false
	}
	var fence semantic.Fence
	if !o.WithoutFence {
		b.fences[key]++
		fence = b.fences[key]
	}
	b.held[key] = &heldLock{token: token, client: client, expires: now.Add(ttl), keep: now.Add(o.MinHold)}
	return fence, ttl, true
}

// release applies one release.
func (b *LockBackend) release(key, token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.live(key)
	if h == nil || h.token != token {
		return
	}
	if b.clock.Now().Before(h.keep) {
		h.expires, h.token = h.keep, ""
		return
	}
	delete(b.held, key)
	if c, waited := b.freed[key]; waited {
		close(c)
		delete(b.freed, key)
	}
}

// freedSignal returns a channel that is closed at the next release of key.
func (b *LockBackend) freedSignal(key string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.freed[key]
	if !ok {
		c = make(chan struct{})
		b.freed[key] = c
	}
	return c
}

// DistributedLock is an in-memory [semantic.DistributedLock].
type DistributedLock struct {
	backend *LockBackend
	name    string
	closed  atomic.Bool
}

var _ semantic.DistributedLock = (*DistributedLock)(nil)

// NewDistributedLock returns the only client of a backend of its own; a nil clock is
// the system's.
func NewDistributedLock(clock semantic.Clock) *DistributedLock {
	return NewLockBackend(clock).Client("test")
}

// Backend returns what the client's lock is kept in.
func (l *DistributedLock) Backend() *LockBackend { return l.backend }

// Close makes every later call return [semantic.ErrClosed].
func (l *DistributedLock) Close() { l.closed.Store(true) }

// Acquire implements [semantic.DistributedLock].
func (l *DistributedLock) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
	const op = "lock.acquire"
	no := semantic.LockClaim{Reason: semantic.ReasonUnavailable}
	if err := semantic.ValidateName(op, "key", key); err != nil {
		return no, err
	}
	if err := semantic.ValidateDuration(op, "ttl", ttl); err != nil {
		return no, err
	}
	o, err := semantic.ResolveLockOptions(op, ttl, opts...)
	if err != nil {
		return no, err
	}
	b := l.backend
	giveUp := b.clock.Now().Add(o.Wait)
	for {
		var freed <-chan struct{}
		if o.Wait > 0 {
			freed = b.freedSignal(key) // before the try, so that no release is missed
		}
		claim, err := l.try(ctx, op, key, ttl, o)
		if claim.Acquired || err != nil || claim.Reason != semantic.ReasonContended {
			return claim, err
		}
		left := giveUp.Sub(b.clock.Now())
		if left <= 0 {
			return claim, nil
		}
		wake := make(chan struct{})
		stop := b.clock.AfterFunc(min(left, max(claim.RetryAfter, time.Millisecond)), func() { close(wake) })
		select {
		case <-freed:
		case <-wake:
		case <-ctx.Done():
			stop()
			return claim, fmt.Errorf("%s %q: still contended: %w", op, key, ctx.Err())
		}
		stop()
	}
}

// try makes one attempt and, as the contract asks, recognises its own after a lost reply.
func (l *DistributedLock) try(ctx context.Context, op, key string, ttl time.Duration, o semantic.LockOptions) (semantic.LockClaim, error) {
	no := semantic.LockClaim{Reason: semantic.ReasonUnavailable}
	if l.closed.Load() {
		return no, fmt.Errorf("%s %q: %w", op, key, semantic.ErrClosed)
	}
	b := l.backend
	sent := b.clock.Now()
	if err := b.before(ctx, op, key); err != nil {
		return no, err
	}
	b.mu.Lock()
	b.tokens++
	token := fmt.Sprintf("token-%d", b.tokens)
	b.mu.Unlock()
	fence, left, ok := b.take(key, l.name, token, ttl, o)
	if lost, resolvable := b.replyLost(); lost && !resolvable {
		b.release(key, token) // the compensating release arrives, only replies are lost
		return no, unknown(op, key)
	}
	if !ok {
		return semantic.LockClaim{Reason: semantic.ReasonContended, RetryAfter: left}, nil
	}
	return semantic.LockClaim{Acquired: true, Token: token, Fence: fence, ValidUntil: semantic.SafeUntil(sent, ttl)}, nil
}

// Release implements [semantic.DistributedLock].
func (l *DistributedLock) Release(ctx context.Context, key, token string) {
	if l.closed.Load() || l.backend.before(context.WithoutCancel(ctx), "lock.release", key) != nil {
		return
	}
	l.backend.release(key, token)
	l.backend.replyLost()
}

// WithLock implements [semantic.DistributedLock].
func (l *DistributedLock) WithLock(ctx context.Context, key string, ttl time.Duration, fn func(context.Context) error, opts ...semantic.LockOption) (ran bool, err error) {
	return semantic.RunWithLock(ctx, l.backend.clock, l, key, ttl, fn, nil, opts...)
}
