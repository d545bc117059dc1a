package testkit

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/waitline"
)

// LimiterBackend is the memory that the clients of a [RateLimiter] double share. Safe
// for concurrent use.
type LimiterBackend struct {
	injector
	clock semantic.Clock

	mu       sync.Mutex
	budgets  map[limitBudget]*budgetState
	requests int
}

type limitBudget struct {
	key   string
	limit semantic.Limit
}

// NewLimiterBackend returns an empty backend; a nil clock is the system's.
func NewLimiterBackend(clock semantic.Clock) *LimiterBackend {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &LimiterBackend{clock: clock, budgets: map[limitBudget]*budgetState{}}
}

// Client returns the limiter as one more replica has it.
func (b *LimiterBackend) Client(name string) *RateLimiter {
	return &RateLimiter{backend: b, name: name, lines: waitline.New(b.clock, 0)}
}

// Requests returns how many requests have reached the backend.
func (b *LimiterBackend) Requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// take applies one request.
func (b *LimiterBackend) take(key string, n int64, limit semantic.Limit) semantic.Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	limit.Window = time.Duration(semantic.Milliseconds(limit.Window)) * time.Millisecond
	id := limitBudget{key, limit}
	s := b.budgets[id]
	if s == nil {
		s = &budgetState{limit: limit}
		b.budgets[id] = s
	}
	return s.take(b.clock.Now(), n)
}

// budgetState is one budget under any of the algorithms.
type budgetState struct {
	limit semantic.Limit
	// What they mean is the algorithm's: tokens spent in the window that ends at at;
	// tokens of the window that began at at, and of the one before; tokens missing at at.
	at      time.Time
	current float64
	before  float64
}

// take is the contract's arithmetic: it moves the state to now, and spends n if they
// are there.
func (s *budgetState) take(now time.Time, n int64) semantic.Decision {
	s.advance(now)
	d := semantic.Decision{RetryAfter: s.wait(now, n)}
	if d.RetryAfter == 0 {
		d.Allowed = true
		s.current += float64(n)
	}
	d.Remaining = max(0, int64(s.left(now)))
	d.ResetAfter = s.full(now)
	return d
}

func (s *budgetState) advance(now time.Time) {
	window := s.limit.Window
	switch s.limit.Algorithm {
	case semantic.FixedWindow:
		if !now.Before(s.at) {
			s.at, s.current = now.Add(window), 0
		}
	case semantic.SlidingWindow:
		start := time.UnixMicro(now.UnixMicro() - now.UnixMicro()%window.Microseconds())
		switch start.Sub(s.at) {
		case 0:
		case window:
			s.before, s.current = s.current, 0
		default:
			s.before, s.current = 0, 0
		}
		s.at = start
	case semantic.GCRA:
		s.current = max(0, s.current-float64(now.Sub(s.at))*float64(s.limit.Max)/float64(window))
		s.at = now
	}
}

// overlap is the part of the window before that still counts.
func (s *budgetState) overlap(now time.Time) float64 {
	if s.limit.Algorithm != semantic.SlidingWindow {
		return 0
	}
	return 1 - float64(now.Sub(s.at))/float64(s.limit.Window)
}

// slack is what the arithmetic may be off by, in tokens.
func (s *budgetState) slack() float64 { return min(float64(s.limit.Max)*1e-9, 1e-3) }

// left is how many whole tokens there are.
func (s *budgetState) left(now time.Time) float64 {
	return math.Floor(float64(s.limit.Max) - s.current - s.before*s.overlap(now) + s.slack())
}

// wait is how long it takes until k tokens are there if nobody takes any.
func (s *budgetState) wait(now time.Time, k int64) time.Duration {
	window, room := float64(s.limit.Window), float64(s.limit.Max-k)-s.current
	if s.before*s.overlap(now) <= room+s.slack() {
		return 0
	}
	switch {
	case s.limit.Algorithm == semantic.FixedWindow:
		return s.at.Sub(now)
	case s.limit.Algorithm == semantic.GCRA:
		return roundUp(-room * window / float64(s.limit.Max))
	case room >= 0:
		return max(time.Microsecond, roundUp(window*(1-room/s.before))-now.Sub(s.at))
	default: // only once this window has become the one before
		return s.limit.Window - now.Sub(s.at) + roundUp(window*(1-float64(s.limit.Max-k)/s.current))
	}
}

// full is how long it takes until the budget is full.
func (s *budgetState) full(now time.Time) time.Duration {
	switch {
	case s.limit.Algorithm == semantic.FixedWindow:
		return s.at.Sub(now)
	case s.limit.Algorithm == semantic.GCRA:
		return roundUp(s.current * float64(s.limit.Window) / float64(s.limit.Max))
	case s.current > 0:
		return 2*s.limit.Window - now.Sub(s.at)
	case s.before > 0:
		return s.limit.Window - now.Sub(s.at)
	}
	return 0
}

// roundUp gives whole microseconds.
func roundUp(ns float64) time.Duration {
	return time.Duration(math.Ceil(ns/1e3-1e-6)) * time.Microsecond
}

// RateLimiter is an in-memory [semantic.RateLimiter].
type RateLimiter struct {
	backend *LimiterBackend
	name    string
	lines   *waitline.Lines
	closed  atomic.Bool
}

var _ semantic.RateLimiter = (*RateLimiter)(nil)

// NewRateLimiter returns the only client of a backend of its own; a nil clock is the
// system's.
func NewRateLimiter(clock semantic.Clock) *RateLimiter {
	return NewLimiterBackend(clock).Client("test")
}

// Backend returns what the client's budgets are kept in.
func (l *RateLimiter) Backend() *LimiterBackend { return l.backend }

// Waiting returns how many Acquire calls of this client wait for limit's budget of key.
func (l *RateLimiter) Waiting(key string, limit semantic.Limit) int {
	return l.lines.Waiting(key, limit)
}

// Close makes every call return [semantic.ErrClosed], also those that wait.
func (l *RateLimiter) Close() {
	l.closed.Store(true)
	l.lines.Close()
}

// TryAcquire implements [semantic.RateLimiter].
func (l *RateLimiter) TryAcquire(ctx context.Context, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
	const op = "limiter.tryAcquire"
	if err := semantic.ValidateTake(op, key, n, limit); err != nil {
		return semantic.Decision{}, err
	}
	return l.take(ctx, op, key, n, limit)
}

// Acquire implements [semantic.RateLimiter].
func (l *RateLimiter) Acquire(ctx context.Context, key string, n int64, limit semantic.Limit) error {
	if err := semantic.ValidateTake(waitline.Operation, key, n, limit); err != nil {
		return err
	}
	return l.lines.Acquire(ctx, key, limit, func(ctx context.Context) (semantic.Decision, error) {
		return l.take(ctx, waitline.Operation, key, n, limit)
	})
}

func (l *RateLimiter) take(ctx context.Context, op, key string, n int64, limit semantic.Limit) (semantic.Decision, error) {
	if l.closed.Load() {
		return semantic.Decision{}, fmt.Errorf("%s %q: %w", op, key, semantic.ErrClosed)
	}
	if err := l.backend.before(ctx, op, key); err != nil {
		return semantic.Decision{}, err
	}
	d := l.backend.take(key, n, limit)
	if lost, _ := l.backend.replyLost(); lost {
		return semantic.Decision{}, unknown(op, key)
	}
	return d, nil
}
