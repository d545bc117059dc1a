package testkit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// lockBug is a lock that breaks one promise.
type lockBug struct {
	*DistributedLock
	acquire  func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error)
	release  func(l *DistributedLock, ctx context.Context, key, token string)
	withLock func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, fn func(context.Context) error) (bool, error)
}

func (b *lockBug) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
	if b.acquire != nil {
		return b.acquire(b.DistributedLock, ctx, key, ttl, opts...)
	}
	return b.DistributedLock.Acquire(ctx, key, ttl, opts...)
}

func (b *lockBug) Release(ctx context.Context, key, token string) {
	if b.release != nil {
		b.release(b.DistributedLock, ctx, key, token)
		return
	}
	b.DistributedLock.Release(ctx, key, token)
}

func (b *lockBug) WithLock(ctx context.Context, key string, ttl time.Duration, fn func(context.Context) error, opts ...semantic.LockOption) (bool, error) {
	if b.withLock != nil {
		return b.withLock(b.DistributedLock, ctx, key, ttl, fn)
	}
	return semantic.RunWithLock(ctx, b.backend.clock, b, key, ttl, fn, nil, opts...)
}

// TestDistributedLockSuiteBites shows that each broken lock fails the case named for it.
func TestDistributedLockSuiteBites(t *testing.T) {
	for _, seeded := range []struct {
		bug  string
		fail string // the case that must catch it
		lockBug
	}{
		{"everybody acquires", "of many concurrent callers exactly one acquires", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
				return semantic.LockClaim{Acquired: true, Token: "t", Fence: 1, ValidUntil: time.Now()}, nil
			}}},
		{"ttl ignored", "the ttl frees the key of a holder that never releases", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, _ time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
				return l.Acquire(ctx, key, longTTL, opts...)
			}}},
		{"release without owner check", "release with a former token leaves the present holder alone", lockBug{
			release: func(l *DistributedLock, _ context.Context, key, _ string) {
				l.backend.mu.Lock()
				defer l.backend.mu.Unlock()
				delete(l.backend.held, key)
			}}},
		{"release does nothing", "release frees the key for the next holder", lockBug{
			release: func(*DistributedLock, context.Context, string, string) {}}},
		{"release obeys the caller's cancel", "release works on a cancelled context", lockBug{
			release: func(l *DistributedLock, ctx context.Context, key, token string) {
				if ctx.Err() == nil {
					l.Release(ctx, key, token)
				}
			}}},
		{"fence does not grow", "the fence grows with every new holder, also across release and expiry", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
				claim, err := l.Acquire(ctx, key, ttl, opts...)
				claim.Fence = min(claim.Fence, 1)
				return claim, err
			}}},
		{"contention is an error", "a held key is contended, without an error, and says for how long", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
				claim, err := l.Acquire(ctx, key, ttl, opts...)
				if claim.Reason == semantic.ReasonContended && err == nil {
					err = errors.New("lock is taken")
				}
				return claim, err
			}}},
		{"an outage looks contended", "an outage is UNAVAILABLE with its cause, and fails closed", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
				claim, err := l.Acquire(ctx, key, ttl, opts...)
				if err != nil {
					return semantic.LockClaim{Reason: semantic.ReasonContended}, nil
				}
				return claim, err
			}}},
		{"fails open", "an outage is UNAVAILABLE with its cause, and fails closed", lockBug{
			withLock: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, fn func(context.Context) error) (bool, error) {
				return true, fn(ctx)
			}}},
		{"a retry meets its own lock", "a lost reply never reports one's own lock as contended", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
				lost := l.backend.has(FaultLoseReply)
				claim, err := l.Acquire(ctx, key, ttl, opts...)
				if lost { // sent again with a new token
					return l.Acquire(ctx, key, ttl, opts...)
				}
				return claim, err
			}}},
		{"an unknown try leaves its key", "a try that stays unknown is said so and leaves no key behind", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
				claim, err := l.Acquire(ctx, key, ttl, opts...)
				if errors.Is(err, semantic.ErrUnknown) {
					l.backend.take(key, "nobody", "orphan", ttl, semantic.LockOptions{})
				}
				return claim, err
			}}},
		{"minimum hold ignored", "a minimum hold outlasts an early release, and not the ttl", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, _ ...semantic.LockOption) (semantic.LockClaim, error) {
				return l.Acquire(ctx, key, ttl)
			}}},
		{"wait ignored", "a wait ends with the release", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, _ ...semantic.LockOption) (semantic.LockClaim, error) {
				return l.Acquire(ctx, key, ttl)
			}}},
		{"arguments unchecked", "arguments out of range are refused by name before any I/O", lockBug{
			acquire: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (semantic.LockClaim, error) {
				return l.try(ctx, "lock.acquire", key, ttl, semantic.LockOptions{})
			}}},
		{"the work never learns of the loss", "WithLock ends fn's context with ErrLockLost before the key can expire", lockBug{
			withLock: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, fn func(context.Context) error) (bool, error) {
				claim, err := l.Acquire(ctx, key, ttl)
				if !claim.Acquired {
					return false, err
				}
				defer l.Release(ctx, key, claim.Token)
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // so that the case ends
				defer cancel()
				return true, fn(short)
			}}},
		{"a panic keeps the lock", "WithLock releases when fn panics, and lets the panic through", lockBug{
			withLock: func(l *DistributedLock, ctx context.Context, key string, ttl time.Duration, fn func(context.Context) error) (bool, error) {
				claim, err := l.Acquire(ctx, key, ttl)
				if !claim.Acquired {
					return false, err
				}
				err = fn(ctx)
				l.Release(ctx, key, claim.Token)
				return true, err
			}}},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
			clock := NewClock()
			var backend *LockBackend
			wantFailure(t, seeded.fail, DistributedLockCases(), Backend[semantic.DistributedLock]{
				New: func(_ T, n int) []semantic.DistributedLock {
					backend = NewLockBackend(clock)
					var ls []semantic.DistributedLock
					for i := range n {
						broken := seeded.lockBug
						broken.DistributedLock = backend.Client(fmt.Sprint("replica-", i))
						ls = append(ls, &broken)
					}
					return ls
				},
				Advance: clock.Advance,
				Fault:   func(_ T, f Fault) func() { return backend.Inject(f) },
			})
		})
	}
}

// bites is how often a case may need to run until it catches a broken implementation:
// some break a promise only when two of their goroutines meet.
const bites = 20

// wantFailure runs the case named name on a broken implementation and fails unless it
// catches it.
func wantFailure[S any](t *testing.T, name string, cases []Case[S], b Backend[S]) {
	t.Helper()
	for _, c := range cases {
		if c.Name == name {
			for range bites {
				if len(Failures(c, b)) > 0 {
					return
				}
			}
			t.Errorf("case %q passed on a broken implementation, %d times", name, bites)
			return
		}
	}
	t.Fatalf("no case is named %q", name)
}
