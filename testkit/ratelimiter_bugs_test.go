package testkit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// limiterBug is a limiter that breaks one promise.
type limiterBug struct {
	*RateLimiter
	try     func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error)
	acquire func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) error
}

func (b *limiterBug) TryAcquire(ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
	if b.try != nil {
		return b.try(b.RateLimiter, ctx, key, n, limit)
	}
	return b.RateLimiter.TryAcquire(ctx, key, n, limit)
}

func (b *limiterBug) Acquire(ctx context.Context, key string, n int64, limit semantic.Limit) error {
	if b.acquire != nil {
		return b.acquire(b.RateLimiter, ctx, key, n, limit)
	}
	return b.RateLimiter.Acquire(ctx, key, n, limit)
}

// spinAcquire is an Acquire without a line: every caller asks for itself.
func spinAcquire(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) error {
	for {
		d, err := l.TryAcquire(ctx, key, n, limit)
		if err != nil || d.Allowed {
			return err
		}
		wake := make(chan struct{})
		stop := l.backend.clock.AfterFunc(d.RetryAfter, func() { close(wake) })
		select {
		case <-wake:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
}

// TestRateLimiterSuiteBites shows that each broken limiter fails the case named for it.
func TestRateLimiterSuiteBites(t *testing.T) {
	var stack sync.Mutex // of the limiter that serves the last comer first
	var waiting []chan struct{}
	for _, seeded := range []struct {
		bug  string
		fail string // the case that must catch it
		limiterBug
	}{
		{"one too many", "of many concurrent callers exactly max are admitted", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				limit.Max++
				return l.TryAcquire(ctx, key, n, limit)
			}}},
		{"check and count are two steps", "of many concurrent callers exactly max are admitted", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				l.backend.mu.Lock()
				s := l.backend.budgets[limitBudget{key, limit}]
				full := s != nil && int64(s.current)+n > limit.Max
				l.backend.mu.Unlock()
				time.Sleep(time.Millisecond)
				if d, err := l.TryAcquire(ctx, key, n, limit); full {
					return d, err
				}
				return semantic.Decision{Allowed: true}, nil
			}}},
		{"a denial is counted", "a denial spends nothing, and tokens are taken together or not at all", limiterBug{ // envoyproxy/ratelimit#185
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				d, err := l.TryAcquire(ctx, key, n, limit)
				if !d.Allowed && d.Remaining > 0 {
					return d, errors.Join(err, l.Acquire(ctx, key, d.Remaining, limit))
				}
				return d, err
			}}},
		{"part of n is taken", "a denial spends nothing, and tokens are taken together or not at all", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (d semantic.Decision, err error) {
				for range n {
					if d, err = l.TryAcquire(ctx, key, 1, limit); !d.Allowed {
						break
					}
				}
				return d, err
			}}},
		{"n is ignored", "a decision tells what is left and when the budget is full", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, _ int64, limit semantic.Limit) (semantic.Decision, error) {
				return l.TryAcquire(ctx, key, 1, limit)
			}}},
		{"one budget for all keys", "keys and limits that differ are counted apart", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, _ string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				return l.TryAcquire(ctx, "one", n, limit)
			}}},
		{"the limit is not part of the key", "keys and limits that differ are counted apart", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				limit.Window = 24 * time.Hour
				return l.TryAcquire(ctx, key, n, limit)
			}}},
		{"the window never ends", "a fixed window opens anew one window after its first hit", limiterBug{ // redis/redis#4548
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				limit.Window = 24 * time.Hour
				return l.TryAcquire(ctx, key, n, limit)
			}}},
		{"every hit prolongs the window", "a fixed window opens anew one window after its first hit", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				l.backend.mu.Lock()
				if s := l.backend.budgets[limitBudget{key, limit}]; s != nil && l.backend.clock.Now().Before(s.at) {
					s.at = l.backend.clock.Now().Add(limit.Window)
				}
				l.backend.mu.Unlock()
				return l.TryAcquire(ctx, key, n, limit)
			}}},
		{"RetryAfter is for one token", "after RetryAfter the same tokens are there", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				d, err := l.TryAcquire(ctx, key, n, limit)
				d.RetryAfter /= time.Duration(n)
				return d, err
			}}},
		{"RetryAfter is always a window", "RetryAfter is not longer than needed", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				d, err := l.TryAcquire(ctx, key, n, limit)
				if !d.Allowed {
					d.RetryAfter = limit.Window
				}
				return d, err
			}}},
		{"sliding is fixed", "a sliding window has no burst at the boundary", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				l.backend.mu.Lock()
				s := l.backend.budgets[limitBudget{key, limit}]
				if s != nil && s.at.Add(limit.Window).Before(l.backend.clock.Now()) {
					delete(l.backend.budgets, limitBudget{key, limit})
				}
				l.backend.mu.Unlock()
				return l.TryAcquire(ctx, key, n, limit)
			}}},
		{"GCRA is fixed", "GCRA spaces admissions evenly after its burst", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				limit.Algorithm = semantic.FixedWindow
				return l.TryAcquire(ctx, key, n, limit)
			}}},
		{"fails open", "an outage is an error and never an admission", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				d, err := l.TryAcquire(ctx, key, n, limit)
				if err != nil {
					return semantic.Decision{Allowed: true}, nil
				}
				return d, err
			}}},
		{"sent again after a lost reply", "a lost reply is an unknown outcome, counted at most once", limiterBug{ // go-redis#2339
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				d, err := l.TryAcquire(ctx, key, n, limit)
				if errors.Is(err, semantic.ErrUnknown) {
					return l.TryAcquire(ctx, key, n, limit)
				}
				return d, err
			}}},
		{"a lost reply is an admission", "a lost reply ends one Acquire and admits nobody", limiterBug{
			acquire: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) error {
				err := l.Acquire(ctx, key, n, limit)
				if errors.Is(err, semantic.ErrUnknown) {
					return nil
				}
				return err
			}}},
		{"n above max waits for ever", "arguments out of range are refused by name before any I/O", limiterBug{ // redis_rate#103
			acquire: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) error {
				return l.Acquire(ctx, key, min(n, limit.Max), limit)
			}}},
		{"Acquire does not wait", "Acquire never admits more than the window allows", limiterBug{
			acquire: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) error {
				_, err := l.TryAcquire(ctx, key, n, limit)
				return err
			}}},
		{"Acquire is never woken", "Acquire waits until its tokens are there", limiterBug{ // redisson#1524
			acquire: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) error {
				if d, err := l.TryAcquire(ctx, key, n, limit); err != nil || d.Allowed {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			}}},
		{"last come, first served", "Acquire serves first come, first served", limiterBug{
			acquire: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) error {
				turn := make(chan struct{})
				stack.Lock()
				if len(waiting) == 0 {
					close(turn)
				}
				waiting = append(waiting, turn)
				stack.Unlock()
				select {
				case <-turn:
				case <-ctx.Done():
					return ctx.Err()
				}
				err := spinAcquire(l, ctx, key, n, limit)
				stack.Lock()
				defer stack.Unlock()
				for i, c := range waiting {
					if c == turn {
						waiting = append(waiting[:i], waiting[i+1:]...)
					}
				}
				if len(waiting) > 0 {
					close(waiting[len(waiting)-1])
				}
				return err
			}}},
		{"a cancelled waiter stays in line", "a cancelled Acquire returns at once and gives its place up", limiterBug{
			acquire: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) error {
				done := make(chan error, 1)
				go func() { done <- l.Acquire(context.WithoutCancel(ctx), key, n, limit) }()
				select {
				case err := <-done:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}}},
		{"an ended context is admitted", "an ended context takes nothing", limiterBug{
			try: func(l *RateLimiter, ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
				return l.TryAcquire(context.WithoutCancel(ctx), key, n, limit)
			}}},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			var backend *LimiterBackend
			wantFailure(t, seeded.fail, RateLimiterCases(), Backend[semantic.RateLimiter]{
				New: func(t T, n int) []semantic.RateLimiter {
					backend = NewLimiterBackend(clock)
					var ls []semantic.RateLimiter
					for range n {
						broken := seeded.limiterBug
						broken.RateLimiter = backend.Client("broken")
						t.Cleanup(broken.RateLimiter.Close)
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
