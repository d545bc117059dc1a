package semantic

import (
	"context"
	"fmt"
	"time"
)

// RateLimiter is a budget per key and window that all replicas share: the request
// ceiling of a third-party API, a daily quota.
//
// It fails closed: when the backend is unavailable the call returns the error and
// admits nothing. One call never counts twice.
//
// Safe for concurrent use. Every method returns [ErrClosed] after close, and an
// error matching [ErrInvalidArgument] (also for n above Max, which could never be
// admitted), [ErrUnavailable], [ErrUnknown] (the call may have been counted) or
// [ErrWrongType].
type RateLimiter interface {
	// TryAcquire takes n tokens of key's budget if they are there. It never blocks
	// on the budget and a denial spends nothing. One round trip at most.
	TryAcquire(ctx context.Context, key string, n int64, limit Limit) (Decision, error)

	// Acquire blocks until n tokens are admitted or ctx ends, whose error it then
	// returns. Callers of one process are admitted first come, first served per
	// key, and only the head of the line talks to the backend. There is no order
	// between processes.
	Acquire(ctx context.Context, key string, n int64, limit Limit) error
}

// Limit is a budget of Max tokens per Window. Limits that differ in any field are
// counted apart, also under the same key.
type Limit struct {
	Max    int64         // tokens per window, at least 1
	Window time.Duration // 1 ms to 366 days
	// Algorithm decides how the window moves; the zero value is [FixedWindow].
	Algorithm LimitAlgorithm
}

// LimitAlgorithm decides how a window moves.
type LimitAlgorithm int

const (
	// FixedWindow counts from the first hit for one Window. At most Max per window;
	// up to 2·Max can pass in a span of one Window that straddles a boundary.
	FixedWindow LimitAlgorithm = iota
	// SlidingWindow weighs the previous window's count by its overlap: no burst at
	// a boundary, at the price of an approximation.
	SlidingWindow
	// GCRA spaces admissions evenly at Max per Window with a burst of Max.
	GCRA
)

// String names the algorithm as it appears in keys and logs.
func (a LimitAlgorithm) String() string {
	switch a {
	case FixedWindow:
		return "fixed"
	case SlidingWindow:
		return "sliding"
	case GCRA:
		return "gcra"
	}
	return fmt.Sprintf("LimitAlgorithm(%d)", int(a))
}

// PerSecond is a budget of n per second.
func PerSecond(n int64) Limit { return Limit{Max: n, Window: time.Second} }

// PerMinute is a budget of n per minute.
func PerMinute(n int64) Limit { return Limit{Max: n, Window: time.Minute} }

// PerHour is a budget of n per hour.
func PerHour(n int64) Limit { return Limit{Max: n, Window: time.Hour} }

// PerDay is a budget of n per 24 hours, counted from the first hit.
func PerDay(n int64) Limit { return Limit{Max: n, Window: 24 * time.Hour} }

// Sliding returns the limit with the [SlidingWindow] algorithm.
func (l Limit) Sliding() Limit { l.Algorithm = SlidingWindow; return l }

// Smooth returns the limit with the [GCRA] algorithm.
func (l Limit) Smooth() Limit { l.Algorithm = GCRA; return l }

// Decision is the answer of a TryAcquire.
type Decision struct {
	// Allowed tells whether the n tokens were taken.
	Allowed bool
	// Remaining is how many tokens are left in the budget now.
	Remaining int64
	// RetryAfter is how long until these n tokens can be there; zero when Allowed.
	RetryAfter time.Duration
	// ResetAfter is how long until the budget is full again; zero when it is full.
	ResetAfter time.Duration
}

// maxTokens keeps every sum exact in a double, which is what Lua computes with.
const maxTokens = 1 << 40

// ValidateTake checks the arguments of a RateLimiter call: key, n of 1 to
// limit.Max, a window of 1 ms to 366 days and a known algorithm. It returns an
// [*ArgumentError] or nil. For implementations of [RateLimiter].
func ValidateTake(operation, key string, n int64, limit Limit) error {
	if err := ValidateName(operation, "key", key); err != nil {
		return err
	}
	refuse := func(argument string, value any, allowed string) error {
		return &ArgumentError{Operation: operation, Argument: argument, Value: value, Allowed: allowed}
	}
	if limit.Max < 1 || limit.Max > maxTokens {
		return refuse("limit.Max", limit.Max, fmt.Sprintf("1 to %d", int64(maxTokens)))
	}
	if err := ValidateDuration(operation, "limit.Window", limit.Window); err != nil {
		return err
	}
	if limit.Algorithm < FixedWindow || limit.Algorithm > GCRA {
		return refuse("limit.Algorithm", int(limit.Algorithm), "FixedWindow, SlidingWindow or GCRA")
	}
	if n < 1 || n > limit.Max {
		return refuse("n", n, fmt.Sprintf("1 to limit.Max, %d", limit.Max))
	}
	return nil
}
