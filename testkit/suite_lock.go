package testkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// RunDistributedLock runs the conformance suite of [semantic.DistributedLock] on b.
func RunDistributedLock(t *testing.T, b Backend[semantic.DistributedLock]) {
	t.Helper()
	runCases(t, b, DistributedLockCases())
}

// span is a time that a real backend can sleep through and that no scheduling delay
// of a loaded machine comes near.
const span = 400 * time.Millisecond

// longTTL outlives any case.
const longTTL = time.Minute

// DistributedLockCases returns the suite's cases.
func DistributedLockCases() []Case[semantic.DistributedLock] {
	type backend = Backend[semantic.DistributedLock]
	cases := []Case[semantic.DistributedLock]{
		{Name: "a free key is acquired with token, fence and validity", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			claim := mustAcquire(t, l, "k", longTTL)
			if claim.Token == "" || claim.Fence <= 0 || claim.Reason != "" {
				t.Errorf("claim lacks token or fence, or has a reason: %+v", claim)
			}
			if claim.ValidUntil.IsZero() {
				t.Errorf("claim says nothing of its validity: %+v", claim)
			}
		}},
		{Name: "a held key is contended, without an error, and says for how long", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustAcquire(t, ls[0], "k", longTTL)
			for _, l := range ls { // also for the very client that holds it
				claim := mustContend(t, l, "k", longTTL)
				if claim.RetryAfter <= 0 || claim.RetryAfter > longTTL {
					t.Errorf("RetryAfter %v, want the holder's remaining ttl, up to %v", claim.RetryAfter, longTTL)
				}
				if claim.Token != "" || claim.Fence != 0 {
					t.Errorf("a contended claim carries a token or fence: %+v", claim)
				}
			}
		}},
		{Name: "of many concurrent callers exactly one acquires", Run: func(t T, b backend) {
			ls := b.New(t, 4)
			for round := range 10 {
				var won atomic.Int32
				var all sync.WaitGroup
				for i := range 32 {
					all.Go(func() {
						claim, err := ls[i%len(ls)].Acquire(t.Context(), fmt.Sprint("k", round), longTTL)
						if err != nil {
							t.Errorf("acquire: %v", err)
						}
						if claim.Acquired {
							won.Add(1)
						}
					})
				}
				all.Wait()
				if won.Load() != 1 {
					t.Fatalf("%d callers hold one key, want exactly 1", won.Load())
				}
			}
		}},
		{Name: "keys are independent", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			for _, key := range []string{"a", "a:b", "{a}", "a}", "%7B", "A", "ключ", strings.Repeat("x", semantic.MaxKeyBytes)} {
				mustAcquire(t, ls[0], key, longTTL)
				mustContend(t, ls[1], key, longTTL)
			}
		}},
		{Name: "release frees the key for the next holder", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			claim := mustAcquire(t, ls[0], "k", longTTL)
			ls[0].Release(t.Context(), "k", claim.Token)
			mustAcquire(t, ls[1], "k", longTTL)
		}},
		// ShedLock#2583, laravel#26213: an overrun holder must not free its successor's lock.
		{Name: "release with a former token leaves the present holder alone", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			first := mustAcquire(t, ls[0], "k", span)
			b.Advance(span + 50*time.Millisecond)
			second := mustAcquire(t, ls[1], "k", longTTL)
			ls[0].Release(t.Context(), "k", first.Token)
			ls[0].Release(t.Context(), "k", "")
			ls[0].Release(t.Context(), "k", "never-given-out")
			mustContend(t, ls[0], "k", longTTL)
			ls[1].Release(t.Context(), "k", second.Token)
			mustAcquire(t, ls[0], "k", longTTL)
		}},
		// open-match#1578, blnk#355, ncps#913, lorawan-stack#7835: unlocking on a dead context.
		{Name: "release works on a cancelled context", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			claim := mustAcquire(t, l, "k", longTTL)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			l.Release(ctx, "k", claim.Token)
			mustAcquire(t, l, "k", longTTL)
		}},
		{Name: "the ttl frees the key of a holder that never releases", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustAcquire(t, ls[0], "k", span)
			mustContend(t, ls[1], "k", span)
			b.Advance(span + 50*time.Millisecond)
			mustAcquire(t, ls[1], "k", span)
		}},
		{Name: "the ttl is not shortened by less than a millisecond", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustAcquire(t, ls[0], "k", span+100*time.Microsecond)
			claim := mustContend(t, ls[1], "k", span)
			if claim.RetryAfter > span+time.Millisecond {
				t.Errorf("RetryAfter %v is longer than the ttl %v", claim.RetryAfter, span+100*time.Microsecond)
			}
		}},
		{Name: "the fence grows with every new holder, also across release and expiry", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			last := semantic.Fence(0)
			for i := range 6 {
				claim := mustAcquire(t, ls[i%2], "k", span)
				if claim.Fence <= last {
					t.Errorf("fence %d of holder %d is not greater than %d", claim.Fence, i, last)
				}
				last = claim.Fence
				if i%2 == 0 {
					ls[i%2].Release(t.Context(), "k", claim.Token)
				} else {
					b.Advance(span + 50*time.Millisecond)
				}
			}
		}},
		{Name: "without a fence the claim has none", Run: func(t T, b backend) {
			claim := mustAcquire(t, b.New(t, 1)[0], "k", longTTL, semantic.WithoutFence())
			if claim.Fence != 0 {
				t.Errorf("fence %d, want none", claim.Fence)
			}
		}},
		{Name: "a minimum hold outlasts an early release, and not the ttl", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			claim := mustAcquire(t, ls[0], "k", longTTL, semantic.WithMinHold(span))
			ls[0].Release(t.Context(), "k", claim.Token)
			contended := mustContend(t, ls[1], "k", longTTL)
			if contended.RetryAfter > span {
				t.Errorf("RetryAfter %v in the minimum hold, want at most %v", contended.RetryAfter, span)
			}
			b.Advance(span + 50*time.Millisecond)
			claim = mustAcquire(t, ls[1], "k", longTTL, semantic.WithMinHold(span))
			b.Advance(span + 50*time.Millisecond)
			ls[1].Release(t.Context(), "k", claim.Token)
			mustAcquire(t, ls[0], "k", longTTL)
		}},
		{Name: "a wait ends with the release", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			claim := mustAcquire(t, ls[0], "k", longTTL)
			got := make(chan semantic.LockClaim, 1)
			go func() {
				c, err := ls[1].Acquire(t.Context(), "k", longTTL, semantic.WithWait(longTTL))
				if err != nil {
					t.Errorf("waiting acquire: %v", err)
				}
				got <- c
			}()
			waitUntilAsked(b)
			ls[0].Release(t.Context(), "k", claim.Token)
			if c := receive(t, got, "the waiter to acquire"); !c.Acquired || c.Fence <= claim.Fence {
				t.Errorf("waiter got %+v, want the lock with a fence above %d", c, claim.Fence)
			}
		}},
		{Name: "a wait ends with the holder's expiry", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustAcquire(t, ls[0], "k", span)
			got := make(chan semantic.LockClaim, 1)
			go func() {
				c, _ := ls[1].Acquire(t.Context(), "k", longTTL, semantic.WithWait(longTTL))
				got <- c
			}()
			waitUntilAsked(b)
			b.Advance(span + 50*time.Millisecond)
			if c := receive(t, got, "the waiter to acquire"); !c.Acquired {
				t.Errorf("waiter got %+v, want the lock", c)
			}
		}},
		{Name: "a wait that is used up is contended without an error", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustAcquire(t, ls[0], "k", longTTL)
			got := make(chan error, 1)
			go func() {
				c, err := ls[1].Acquire(t.Context(), "k", longTTL, semantic.WithWait(span))
				if c.Acquired || c.Reason != semantic.ReasonContended {
					err = fmt.Errorf("claim %+v, want CONTENDED (%w)", c, err)
				}
				got <- err
			}()
			waitUntilAsked(b)
			b.Advance(span + 50*time.Millisecond)
			if err := receive(t, got, "the wait to be used up"); err != nil {
				t.Errorf("used-up wait: %v", err)
			}
		}},
		// bsm/redislock#79: a deadline must not hide that the lock is contended.
		{Name: "a wait cut by its context says contended beside the context's error", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustAcquire(t, ls[0], "k", longTTL)
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan error, 1)
			go func() {
				c, err := ls[1].Acquire(ctx, "k", longTTL, semantic.WithWait(longTTL))
				if c.Reason != semantic.ReasonContended {
					t.Errorf("reason %q, want CONTENDED", c.Reason)
				}
				got <- err
			}()
			waitUntilAsked(b)
			cancel()
			if err := receive(t, got, "the cancelled wait"); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want context.Canceled", err)
			}
		}},
		{Name: "an ended context acquires nothing", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			claim, err := l.Acquire(ctx, "k", longTTL)
			if claim.Acquired || !errors.Is(err, context.Canceled) {
				t.Errorf("claim %+v, error %v, want nothing and context.Canceled", claim, err)
			}
			mustAcquire(t, l, "k", longTTL)
		}},
		{Name: "an ended context is not contention, also with a wait", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for i := range 20 {
				claim, err := l.Acquire(ctx, fmt.Sprint("k", i), longTTL, semantic.WithWait(longTTL))
				if claim.Reason != semantic.ReasonUnavailable || !errors.Is(err, context.Canceled) {
					t.Fatalf("claim %+v, error %v, want UNAVAILABLE and context.Canceled", claim, err)
				}
			}
		}},
		{Name: "nobody in line is told contended while the backend is silent", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			defer b.Fault(t, FaultHang)()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					claim, err := l.Acquire(ctx, "k", longTTL, semantic.WithWait(span))
					if claim.Acquired || claim.Reason != semantic.ReasonUnavailable || err == nil {
						t.Errorf("claim %+v, error %v, want UNAVAILABLE and its cause", claim, err)
					}
				})
			}
			all.Wait()
		}},
		{Name: "arguments out of range are refused by name before any I/O", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			defer b.Fault(t, FaultDown)() // an I/O would be an outage, not an argument error
			for _, c := range []struct {
				argument, key string
				ttl           time.Duration
				opts          []semantic.LockOption
			}{
				{"key", "", longTTL, nil},
				{"key", strings.Repeat("x", semantic.MaxKeyBytes+1), longTTL, nil},
				{"key", "a\nb", longTTL, nil},
				{"key", "\xff", longTTL, nil},
				{"ttl", "k", 0, nil},
				{"ttl", "k", -time.Second, nil},
				{"ttl", "k", 999 * time.Microsecond, nil},
				{"ttl", "k", semantic.MaxTTL + 1, nil},
				{"wait", "k", longTTL, []semantic.LockOption{semantic.WithWait(-1)}},
				{"minHold", "k", longTTL, []semantic.LockOption{semantic.WithMinHold(longTTL + 1)}},
			} {
				claim, err := l.Acquire(t.Context(), c.key, c.ttl, c.opts...)
				wantArgument(t, err, c.argument)
				if claim.Acquired || claim.Reason == semantic.ReasonContended {
					t.Errorf("%s: claim %+v of a refused call", c.argument, claim)
				}
			}
			_, err := l.WithLock(t.Context(), "k", longTTL, nil)
			wantArgument(t, err, "fn")
		}},
		// redsync PR#32: an outage is not contention.
		{Name: "an outage is UNAVAILABLE with its cause, and fails closed", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			heal := b.Fault(t, FaultDown)
			claim, err := l.Acquire(t.Context(), "k", longTTL)
			if claim.Acquired || claim.Reason != semantic.ReasonUnavailable || !errors.Is(err, semantic.ErrUnavailable) || errors.Is(err, semantic.ErrUnknown) {
				t.Errorf("claim %+v, error %v, want UNAVAILABLE matching ErrUnavailable", claim, err)
			}
			ran, err := l.WithLock(t.Context(), "k", longTTL, func(context.Context) error {
				t.Errorf("the work ran without the lock")
				return nil
			})
			if ran || !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("WithLock returned %v, %v, want false and the cause", ran, err)
			}
			l.Release(t.Context(), "k", "token") // never fails
			heal()
			mustAcquire(t, l, "k", longTTL)
		}},
		// go-redis#2985: a retried SET NX meets its own write and says contended.
		{Name: "a lost reply never reports one's own lock as contended", Needs: NeedFaults, Run: func(t T, b backend) {
			ls := b.New(t, 2)
			for i := range 3 {
				key := fmt.Sprint("k", i)
				heal := b.Fault(t, FaultLoseReply)
				claim, err := ls[0].Acquire(t.Context(), key, longTTL)
				heal()
				if err != nil || !claim.Acquired {
					t.Fatalf("claim %+v, error %v, want the lock", claim, err)
				}
				mustContend(t, ls[1], key, longTTL)
				ls[0].Release(t.Context(), key, claim.Token)
				mustAcquire(t, ls[1], key, longTTL)
			}
		}},
		// redsync LockContext leaves its key for the whole ttl.
		{Name: "a try that stays unknown is said so and leaves no key behind", Needs: NeedFaults, Run: func(t T, b backend) {
			ls := b.New(t, 2)
			heal := b.Fault(t, FaultLoseReplies)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			claim, err := ls[0].Acquire(ctx, "k", longTTL)
			cancel()
			if claim.Acquired || claim.Reason != semantic.ReasonUnavailable || !errors.Is(err, semantic.ErrUnknown) {
				t.Errorf("claim %+v, error %v, want UNAVAILABLE matching ErrUnknown", claim, err)
			}
			heal()
			if !eventually(func() bool {
				c, err := ls[1].Acquire(t.Context(), "k", longTTL)
				return err == nil && c.Acquired
			}) {
				t.Errorf("the key is still held although nobody holds it")
			}
		}},
		{Name: "a lost reply of a release is not a failure", Needs: NeedFaults, Run: func(t T, b backend) {
			ls := b.New(t, 2)
			claim := mustAcquire(t, ls[0], "k", longTTL)
			heal := b.Fault(t, FaultLoseReply)
			ls[0].Release(t.Context(), "k", claim.Token)
			heal()
			mustAcquire(t, ls[1], "k", longTTL)
		}},
		{Name: "a cancel returns promptly from a silent backend", Needs: NeedFaults, Run: func(t T, b backend) {
			ls := b.New(t, 2)
			heal := b.Fault(t, FaultHang)
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan error, 1)
			go func() {
				claim, err := ls[0].Acquire(ctx, "k", longTTL)
				if claim.Acquired {
					t.Errorf("acquired from a silent backend")
				}
				got <- err
			}()
			time.Sleep(20 * time.Millisecond)
			cancel()
			select {
			case err := <-got:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want context.Canceled", err)
				}
			case <-time.After(time.Second):
				t.Errorf("acquire went on for a second after its cancel")
			}
			heal()
			if !eventually(func() bool {
				c, err := ls[1].Acquire(t.Context(), "k", longTTL)
				return err == nil && c.Acquired
			}) {
				t.Errorf("the cancelled acquire left its key behind")
			}
		}},
		{Name: "after close every method says ErrClosed", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			c, ok := l.(interface{ Close() })
			if !ok {
				t.Logf("not run: this client cannot be closed by itself")
				return
			}
			claim := mustAcquire(t, l, "k", longTTL)
			c.Close()
			if _, err := l.Acquire(t.Context(), "other", longTTL); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("Acquire after close: %v, want ErrClosed", err)
			}
			if ran, err := l.WithLock(t.Context(), "other", longTTL, func(context.Context) error { return nil }); ran || !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("WithLock after close: %v, %v, want ErrClosed", ran, err)
			}
			l.Release(t.Context(), "k", claim.Token)
		}},
	}
	return append(cases, withLockCases()...)
}

func mustAcquire(t T, l semantic.DistributedLock, key string, ttl time.Duration, opts ...semantic.LockOption) semantic.LockClaim {
	t.Helper()
	claim, err := l.Acquire(t.Context(), key, ttl, opts...)
	if err != nil || !claim.Acquired {
		t.Fatalf("acquire of free key %.40q: %+v, %v", key, claim, err)
	}
	return claim
}

func mustContend(t T, l semantic.DistributedLock, key string, ttl time.Duration, opts ...semantic.LockOption) semantic.LockClaim {
	t.Helper()
	claim, err := l.Acquire(t.Context(), key, ttl, opts...)
	if err != nil || claim.Acquired || claim.Reason != semantic.ReasonContended {
		t.Fatalf("acquire of held key %.40q: %+v, %v, want CONTENDED without an error", key, claim, err)
	}
	return claim
}
