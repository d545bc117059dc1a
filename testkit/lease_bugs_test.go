package testkit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// leaseBug is a lease that breaks one promise.
type leaseBug struct {
	*ResourceLease
	claim    func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration) (bool, error)
	takeOver func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration) (string, error)
	release  func(l *ResourceLease, ctx context.Context, key, holder string) semantic.RemoveResult
	hold     func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration, fn func(context.Context) error) (bool, error)
}

func (b *leaseBug) Claim(ctx context.Context, key, holder string, ttl time.Duration) (bool, error) {
	if b.claim != nil {
		return b.claim(b.ResourceLease, ctx, key, holder, ttl)
	}
	return b.ResourceLease.Claim(ctx, key, holder, ttl)
}

func (b *leaseBug) TakeOver(ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
	if b.takeOver != nil {
		return b.takeOver(b.ResourceLease, ctx, key, holder, ttl)
	}
	return b.ResourceLease.TakeOver(ctx, key, holder, ttl)
}

func (b *leaseBug) Release(ctx context.Context, key, holder string) semantic.RemoveResult {
	if b.release != nil {
		return b.release(b.ResourceLease, ctx, key, holder)
	}
	return b.ResourceLease.Release(ctx, key, holder)
}

func (b *leaseBug) Hold(ctx context.Context, key, holder string, ttl time.Duration, fn func(context.Context) error) (bool, error) {
	if b.hold != nil {
		return b.hold(b.ResourceLease, ctx, key, holder, ttl, fn)
	}
	return b.ResourceLease.Hold(ctx, key, holder, ttl, fn)
}

// TestResourceLeaseSuiteBites shows that each broken lease fails the case named for it.
func TestResourceLeaseSuiteBites(t *testing.T) {
	unheld := func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration, fn func(context.Context) error) (bool, error) {
		held, err := l.Claim(ctx, key, holder, ttl)
		if !held {
			return false, err
		}
		defer l.Release(context.WithoutCancel(ctx), key, holder)
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // so that the case ends
		defer cancel()
		return true, fn(short)
	}
	for _, seeded := range []struct {
		bug  string
		fail string
		leaseBug
	}{
		{"claim takes from another", "a free lease is claimed, and refused to another holder", leaseBug{
			claim: func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration) (bool, error) {
				_, err := l.TakeOver(ctx, key, holder, ttl)
				return err == nil, err
			}}},
		{"everybody claims", "of many concurrent holders exactly one claims", leaseBug{
			claim: func(*ResourceLease, context.Context, string, string, time.Duration) (bool, error) { return true, nil }}},
		{"a refresh keeps the old ttl", "a claim by the present holder refreshes the ttl", leaseBug{
			claim: func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration) (bool, error) {
				if l.backend.Holder(key) == holder {
					return true, nil
				}
				return l.Claim(ctx, key, holder, ttl)
			}}},
		{"a claim by its holder is refused", "a claim by the present holder refreshes the ttl", leaseBug{
			claim: func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration) (bool, error) {
				if l.backend.Holder(key) != "" {
					return false, nil
				}
				return l.Claim(ctx, key, holder, ttl)
			}}},
		{"takeover does not name the previous holder", "a takeover hands over at once and names the previous holder", leaseBug{
			takeOver: func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
				_, err := l.TakeOver(ctx, key, holder, ttl)
				return "", err
			}}},
		{"release without holder check", "a release after expiry finds no holder, or the one that reclaimed it", leaseBug{
			release: func(l *ResourceLease, ctx context.Context, key, holder string) semantic.RemoveResult {
				if present := l.backend.Holder(key); present != "" {
					l.Release(ctx, key, present)
					return semantic.RemoveResult{Removed: true, Holder: holder}
				}
				return l.Release(ctx, key, holder)
			}}},
		{"expired and reclaimed are one", "a release after expiry finds no holder, or the one that reclaimed it", leaseBug{
			release: func(l *ResourceLease, ctx context.Context, key, holder string) semantic.RemoveResult {
				r := l.Release(ctx, key, holder)
				if r.Reason == semantic.ReasonReclaimed {
					return semantic.RemoveResult{Reason: semantic.ReasonNoHolder}
				}
				return r
			}}},
		{"a retried release says no holder", "a release whose reply was lost still says removed", leaseBug{
			release: func(l *ResourceLease, ctx context.Context, key, holder string) semantic.RemoveResult {
				if l.backend.has(FaultLoseReply) {
					l.Release(ctx, key, holder)
				}
				return l.Release(ctx, key, holder)
			}}},
		{"a retried takeover names itself", "a takeover whose reply was lost still names the previous holder", leaseBug{
			takeOver: func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration) (string, error) {
				if l.backend.has(FaultLoseReply) {
					_, _ = l.TakeOver(ctx, key, holder, ttl)
				}
				return l.TakeOver(ctx, key, holder, ttl)
			}}},
		{"an outage looks released", "an outage is an error of every verb, and REDIS_UNAVAILABLE of a release", leaseBug{
			release: func(l *ResourceLease, ctx context.Context, key, holder string) semantic.RemoveResult {
				r := l.Release(ctx, key, holder)
				if r.Reason == semantic.ReasonRedisUnavailable {
					return semantic.RemoveResult{Removed: true, Holder: holder}
				}
				return r
			}}},
		{"hold never renews", "hold runs fn with the lease, keeps it past its ttl, and releases", leaseBug{hold: unheld}},
		{"hold never cancels", "hold ends fn's context before the lease can expire in an outage", leaseBug{hold: unheld}},
		{"hold does not see a takeover", "hold ends fn's context with ErrLeaseLost when another takes over", leaseBug{hold: unheld}},
		{"hold gives up at the first failed renewal", "hold survives an outage shorter than its ttl", leaseBug{
			hold: func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration, fn func(context.Context) error) (bool, error) {
				work, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				return semantic.RunHold(work, l.backend.clock, l, key, holder, ttl, fn, semantic.HoldHooks{
					RenewFailed: func(error) { cancel(semantic.ErrLeaseLost) },
				})
			}}},
		{"hold releases before the work has ended", "hold keeps the lease while fn winds down, then releases", leaseBug{
			hold: func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration, fn func(context.Context) error) (bool, error) {
				return l.Hold(ctx, key, holder, ttl, func(work context.Context) error {
					told, tell := context.WithCancelCause(context.WithoutCancel(work))
					stop := context.AfterFunc(work, func() {
						l.Release(told, key, holder)
						tell(context.Cause(work))
					})
					defer stop()
					return fn(told)
				})
			}}},
		{"arguments unchecked", "arguments out of range are refused by name before any I/O", leaseBug{
			claim: func(l *ResourceLease, ctx context.Context, key, holder string, ttl time.Duration) (bool, error) {
				return false, errors.New("bad request")
			}}},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
			clock := NewClock()
			var backend *LeaseBackend
			wantFailure(t, seeded.fail, ResourceLeaseCases(), Backend[semantic.ResourceLease]{
				New: func(_ T, n int) []semantic.ResourceLease {
					backend = NewLeaseBackend(clock)
					var ls []semantic.ResourceLease
					for range n {
						broken := seeded.leaseBug
						broken.ResourceLease = backend.Client()
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
