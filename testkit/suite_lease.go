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

// RunResourceLease runs the conformance suite of [semantic.ResourceLease] on b.
func RunResourceLease(t *testing.T, b Backend[semantic.ResourceLease]) {
	t.Helper()
	runCases(t, b, ResourceLeaseCases())
}

// ResourceLeaseCases returns the suite's cases.
func ResourceLeaseCases() []Case[semantic.ResourceLease] {
	type backend = Backend[semantic.ResourceLease]
	return []Case[semantic.ResourceLease]{
		{Name: "a free lease is claimed, and refused to another holder", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustClaim(t, ls[0], "k", "a", longTTL, true)
			mustClaim(t, ls[1], "k", "b", longTTL, false)
			mustClaim(t, ls[1], "other", "b", longTTL, true)
		}},
		{Name: "a claim by the present holder refreshes the ttl", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustClaim(t, ls[0], "k", "a", span, true)
			b.Advance(span / 2)
			mustClaim(t, ls[1], "k", "a", 2*span, true) // the same holder from another replica
			b.Advance(span)
			mustClaim(t, ls[1], "k", "b", span, false)
			b.Advance(span)
			mustClaim(t, ls[1], "k", "b", span, true)
		}},
		{Name: "of many concurrent holders exactly one claims", Run: func(t T, b backend) {
			ls := b.New(t, 4)
			for round := range 10 {
				var won atomic.Int32
				var all sync.WaitGroup
				for i := range 32 {
					all.Go(func() {
						ok, err := ls[i%len(ls)].Claim(t.Context(), fmt.Sprint("k", round), fmt.Sprint("h", i), longTTL)
						if err != nil {
							t.Errorf("claim: %v", err)
						}
						if ok {
							won.Add(1)
						}
					})
				}
				all.Wait()
				if won.Load() != 1 {
					t.Fatalf("%d holders have one lease, want exactly 1", won.Load())
				}
			}
		}},
		{Name: "a takeover hands over at once and names the previous holder", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustTakeOver(t, ls[0], "k", "a", "")
			mustTakeOver(t, ls[1], "k", "b", "a")
			mustTakeOver(t, ls[1], "k", "b", "b")
			mustClaim(t, ls[0], "k", "a", longTTL, false)
			mustRelease(t, ls[0], "k", "a", semantic.RemoveResult{Reason: semantic.ReasonReclaimed, Holder: "b"})
			mustRelease(t, ls[1], "k", "b", semantic.RemoveResult{Removed: true, Holder: "b"})
		}},
		{Name: "a release says that the holder still owned it, once", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			mustClaim(t, l, "k", "a", longTTL, true)
			mustRelease(t, l, "k", "a", semantic.RemoveResult{Removed: true, Holder: "a"})
			mustRelease(t, l, "k", "a", semantic.RemoveResult{Reason: semantic.ReasonNoHolder})
		}},
		// redsync#107, PR#143: expired and taken over are different things.
		{Name: "a release after expiry finds no holder, or the one that reclaimed it", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustClaim(t, ls[0], "k", "a", span, true)
			b.Advance(span + 50*time.Millisecond)
			mustRelease(t, ls[0], "k", "a", semantic.RemoveResult{Reason: semantic.ReasonNoHolder})
			mustClaim(t, ls[0], "k", "a", span, true)
			b.Advance(span + 50*time.Millisecond)
			mustClaim(t, ls[1], "k", "b", longTTL, true)
			mustRelease(t, ls[0], "k", "a", semantic.RemoveResult{Reason: semantic.ReasonReclaimed, Holder: "b"})
			mustClaim(t, ls[0], "k", "c", longTTL, false) // b's lease is untouched
		}},
		{Name: "holders and keys of any shape stay apart", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			for _, name := range []string{"a", "a b", "{a}", "%7Ba%7D", "a:b", "ключ", strings.Repeat("x", semantic.MaxKeyBytes-1)} {
				mustClaim(t, l, name, name, longTTL, true)
				mustClaim(t, l, name, name+"!", longTTL, false)
				mustRelease(t, l, name, name, semantic.RemoveResult{Removed: true, Holder: name})
			}
		}},
		{Name: "arguments out of range are refused by name before any I/O", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			defer b.Fault(t, FaultDown)()
			for _, c := range []struct {
				argument, key, holder string
				ttl                   time.Duration
			}{
				{"key", "", "a", longTTL},
				{"key", "a\x00", "a", longTTL},
				{"holder", "k", "", longTTL},
				{"holder", "k", strings.Repeat("x", semantic.MaxKeyBytes+1), longTTL},
				{"ttl", "k", "a", 0},
				{"ttl", "k", "a", time.Microsecond},
				{"ttl", "k", "a", semantic.MaxTTL + 1},
			} {
				_, err := l.Claim(t.Context(), c.key, c.holder, c.ttl)
				wantArgument(t, err, c.argument)
				_, err = l.TakeOver(t.Context(), c.key, c.holder, c.ttl)
				wantArgument(t, err, c.argument)
				if c.argument != "ttl" {
					wantArgument(t, l.Release(t.Context(), c.key, c.holder).Err, c.argument)
				}
			}
			_, err := l.Hold(t.Context(), "k", "a", longTTL, nil)
			wantArgument(t, err, "fn")
		}},
		{Name: "an outage is an error of every verb, and REDIS_UNAVAILABLE of a release", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			mustClaim(t, l, "k", "a", longTTL, true)
			heal := b.Fault(t, FaultDown)
			if ok, err := l.Claim(t.Context(), "k", "a", longTTL); ok || !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("claim in an outage: %v, %v", ok, err)
			}
			if _, err := l.TakeOver(t.Context(), "k", "a", longTTL); !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("takeover in an outage: %v", err)
			}
			r := l.Release(t.Context(), "k", "a")
			if r.Removed || r.Reason != semantic.ReasonRedisUnavailable || !errors.Is(r.Err, semantic.ErrUnavailable) {
				t.Errorf("release in an outage: %+v, want REDIS_UNAVAILABLE with its cause", r)
			}
			held, err := l.Hold(t.Context(), "k", "a", longTTL, func(context.Context) error {
				t.Errorf("the work ran without the lease")
				return nil
			})
			if held || !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("hold in an outage: %v, %v", held, err)
			}
			heal()
			mustRelease(t, l, "k", "a", semantic.RemoveResult{Removed: true, Holder: "a"})
		}},
		{Name: "a lost reply of a claim is resolved", Needs: NeedFaults, Run: func(t T, b backend) {
			ls := b.New(t, 2)
			heal := b.Fault(t, FaultLoseReply)
			mustClaim(t, ls[0], "k", "a", longTTL, true)
			heal()
			mustClaim(t, ls[1], "k", "b", longTTL, false)
		}},
		{Name: "a takeover whose reply was lost still names the previous holder", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			mustClaim(t, l, "k", "a", longTTL, true)
			heal := b.Fault(t, FaultLoseReply)
			mustTakeOver(t, l, "k", "b", "a")
			heal()
		}},
		// A plain compare-and-delete answers "not yours" to its own second try.
		{Name: "a release whose reply was lost still says removed", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			mustClaim(t, l, "k", "a", longTTL, true)
			heal := b.Fault(t, FaultLoseReply)
			mustRelease(t, l, "k", "a", semantic.RemoveResult{Removed: true, Holder: "a"})
			heal()
			mustRelease(t, l, "k", "a", semantic.RemoveResult{Reason: semantic.ReasonNoHolder})
		}},
		{Name: "a release that stays unknown is REDIS_UNAVAILABLE matching ErrUnknown", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			mustClaim(t, l, "k", "a", longTTL, true)
			heal := b.Fault(t, FaultLoseReplies)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			r := l.Release(ctx, "k", "a")
			heal()
			if r.Removed || r.Reason != semantic.ReasonRedisUnavailable || !errors.Is(r.Err, semantic.ErrUnknown) {
				t.Errorf("release: %+v, want REDIS_UNAVAILABLE matching ErrUnknown", r)
			}
		}},
		{Name: "a cancel returns promptly from a silent backend", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			defer b.Fault(t, FaultHang)()
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan error, 1)
			go func() {
				_, err := l.Claim(ctx, "k", "a", longTTL)
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
				t.Errorf("claim went on for a second after its cancel")
			}
		}},
		{Name: "hold runs fn with the lease, keeps it past its ttl, and releases", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			failure := errors.New("work failed")
			held, err := ls[0].Hold(t.Context(), "k", "a", span, func(ctx context.Context) error {
				for range 4 {
					b.Advance(span / 2)
					mustClaim(t, ls[1], "k", "b", span, false)
				}
				if ctx.Err() != nil {
					t.Errorf("the work's context ended although every renewal succeeded: %v", context.Cause(ctx))
				}
				return failure
			})
			if !held || !errors.Is(err, failure) || errors.Is(err, semantic.ErrLeaseLost) {
				t.Errorf("hold returned %v, %v, want true and the work's error", held, err)
			}
			mustClaim(t, ls[1], "k", "b", longTTL, true)
		}},
		{Name: "hold of another's lease is false without an error", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustClaim(t, ls[0], "k", "a", longTTL, true)
			held, err := ls[1].Hold(t.Context(), "k", "b", longTTL, func(context.Context) error {
				t.Errorf("the work ran without the lease")
				return nil
			})
			if held || err != nil {
				t.Errorf("hold returned %v, %v, want false, nil", held, err)
			}
		}},
		// redisson#4698, hashicorp/consul#18271: the holder must learn of it.
		{Name: "hold ends fn's context with ErrLeaseLost when another takes over", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			started, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				held, err := ls[0].Hold(t.Context(), "k", "a", span, waitForCancel(started))
				if !held || !errors.Is(err, semantic.ErrLeaseLost) {
					t.Errorf("hold returned %v, %v, want true, ErrLeaseLost", held, err)
				}
			}()
			receive(t, started, "the work to start")
			if _, err := ls[1].TakeOver(t.Context(), "k", "b", longTTL); err != nil {
				t.Fatalf("takeover: %v", err)
			}
			b.Advance(span)
			receive(t, done, "the work to be cancelled")
			mustClaim(t, ls[1], "k", "c", longTTL, false) // the former holder's release left b alone
		}},
		// redisson#775, #3194, cozy-stack PR#4911: one failed renewal is not a loss.
		{Name: "hold survives an outage shorter than its ttl", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			started, finish, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				held, err := l.Hold(t.Context(), "k", "a", 3*span, func(ctx context.Context) error {
					close(started)
					select {
					case <-finish:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
				if !held || err != nil {
					t.Errorf("hold returned %v, %v, want true, nil", held, err)
				}
			}()
			receive(t, started, "the work to start")
			heal := b.Fault(t, FaultDown)
			b.Advance(3 * span / 2)
			heal()
			b.Advance(3 * span)
			close(finish)
			receive(t, done, "hold to return")
		}},
		// redisson#5698, #3636: cancelled before the server lets a second holder in.
		{Name: "hold ends fn's context before the lease can expire in an outage", Needs: NeedFaults, Run: func(t T, b backend) {
			ls := b.New(t, 2)
			started, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				held, err := ls[0].Hold(t.Context(), "k", "a", span, waitForCancel(started))
				if !held || !errors.Is(err, semantic.ErrLeaseLost) {
					t.Errorf("hold returned %v, %v, want true, ErrLeaseLost", held, err)
				}
			}()
			receive(t, started, "the work to start")
			heal := b.Fault(t, FaultDown)
			b.Advance(span)
			receive(t, done, "the work to be cancelled")
			heal()
		}},
		// kubernetes#23731: the lease must not be free before the work has ended.
		{Name: "hold keeps the lease while fn winds down, then releases", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			ctx, cancel := context.WithCancel(t.Context())
			held, err := ls[0].Hold(ctx, "k", "a", span, func(work context.Context) error {
				cancel()
				<-work.Done()
				for range 4 {
					b.Advance(span / 2)
					mustClaim(t, ls[1], "k", "b", span, false)
				}
				return context.Cause(work)
			})
			if !held || !errors.Is(err, context.Canceled) {
				t.Errorf("hold returned %v, %v, want true, context.Canceled", held, err)
			}
			mustClaim(t, ls[1], "k", "b", longTTL, true)
		}},
		{Name: "hold releases when fn panics, and lets the panic through", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			func() {
				defer func() {
					if p := recover(); p != "boom" {
						t.Errorf("recovered %v, want the work's panic", p)
					}
				}()
				_, _ = ls[0].Hold(t.Context(), "k", "a", longTTL, func(context.Context) error { panic("boom") })
			}()
			mustClaim(t, ls[1], "k", "b", longTTL, true)
		}},
		{Name: "after close every method says ErrClosed", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			c, ok := l.(interface{ Close() })
			if !ok {
				t.Logf("not run: this client cannot be closed by itself")
				return
			}
			c.Close()
			if _, err := l.Claim(t.Context(), "k", "a", longTTL); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("Claim after close: %v", err)
			}
			if _, err := l.TakeOver(t.Context(), "k", "a", longTTL); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("TakeOver after close: %v", err)
			}
			if r := l.Release(t.Context(), "k", "a"); r.Removed || !errors.Is(r.Err, semantic.ErrClosed) {
				t.Errorf("Release after close: %+v", r)
			}
			if held, err := l.Hold(t.Context(), "k", "a", longTTL, func(context.Context) error { return nil }); held || !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("Hold after close: %v, %v", held, err)
			}
		}},
	}
}

// waitForCancel is work that ends with its context's cause.
func waitForCancel(started chan<- struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		close(started)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Second):
			return errors.New("the context never ended")
		}
	}
}

func mustClaim(t T, l semantic.ResourceLease, key, holder string, ttl time.Duration, want bool) {
	t.Helper()
	if got, err := l.Claim(t.Context(), key, holder, ttl); err != nil || got != want {
		t.Fatalf("claim of %.40q for %.40q: %v, %v, want %v", key, holder, got, err, want)
	}
}

func mustTakeOver(t T, l semantic.ResourceLease, key, holder, previous string) {
	t.Helper()
	if got, err := l.TakeOver(t.Context(), key, holder, longTTL); err != nil || got != previous {
		t.Fatalf("takeover of %q for %q: previous holder %q, %v, want %q", key, holder, got, err, previous)
	}
}

func mustRelease(t T, l semantic.ResourceLease, key, holder string, want semantic.RemoveResult) {
	t.Helper()
	if got := l.Release(t.Context(), key, holder); got != want {
		t.Fatalf("release of %.40q by %.40q: %+v, want %+v", key, holder, got, want)
	}
}
