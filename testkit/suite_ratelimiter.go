package testkit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// RunRateLimiter runs the conformance suite of [semantic.RateLimiter] on b.
func RunRateLimiter(t *testing.T, b Backend[semantic.RateLimiter]) {
	t.Helper()
	runCases(t, b, RateLimiterCases())
}

// RateLimiterCases returns the suite's cases.
func RateLimiterCases() []Case[semantic.RateLimiter] {
	return append(append(limiterDecisionCases(), limiterWaitCases()...), limiterFaultCases()...)
}

type limiterCase = Case[semantic.RateLimiter]

// calm is a limit whose window no case outlives: it gives nothing back meanwhile.
func calm(most int64) semantic.Limit { return semantic.PerDay(most) }

// algorithms are the same budget under each algorithm.
func algorithms(l semantic.Limit) []semantic.Limit {
	return []semantic.Limit{l, l.Sliding(), l.Smooth()}
}

func limiterDecisionCases() []limiterCase {
	type backend = Backend[semantic.RateLimiter]
	return []limiterCase{
		{Name: "of many concurrent callers exactly max are admitted", Run: func(t T, b backend) {
			for _, limit := range algorithms(calm(40)) {
				ls := b.New(t, 5)
				var admitted atomic.Int64
				var all sync.WaitGroup
				for i := range 100 {
					all.Go(func() {
						if d := mustTake(t, ls[i%len(ls)], "k", 1, limit); d.Allowed {
							admitted.Add(1)
						}
					})
				}
				all.Wait()
				if admitted.Load() != 40 {
					t.Errorf("%v: %d of 100 callers admitted, want exactly 40", limit.Algorithm, admitted.Load())
				}
			}
		}},
		{Name: "a decision tells what is left and when the budget is full", Run: func(t T, b backend) {
			for _, limit := range algorithms(calm(10)) {
				ls := b.New(t, 2)
				for i, want := range []int64{7, 4, 1} {
					d := mustTake(t, ls[i%2], "k", 3, limit)
					if !d.Allowed || d.Remaining != want || d.RetryAfter != 0 {
						t.Errorf("%v: take 3 number %d: %+v, want admitted with %d left and nothing to wait for", limit.Algorithm, i+1, d, want)
					}
					if d.ResetAfter <= 0 || d.ResetAfter > 2*limit.Window {
						t.Errorf("%v: ResetAfter %v, want more than 0 and no more than the budget needs", limit.Algorithm, d.ResetAfter)
					}
				}
			}
		}},
		{Name: "a denial spends nothing, and tokens are taken together or not at all", Run: func(t T, b backend) {
			for _, limit := range algorithms(calm(10)) {
				l := b.New(t, 1)[0]
				mustTake(t, l, "k", 7, limit)
				for range 3 {
					d := mustTake(t, l, "k", 4, limit)
					if d.Allowed || d.Remaining != 3 || d.RetryAfter <= 0 {
						t.Errorf("%v: 4 of 3 left: %+v, want denied with 3 left and a time to retry", limit.Algorithm, d)
					}
				}
				if d := mustTake(t, l, "k", 3, limit); !d.Allowed || d.Remaining != 0 {
					t.Errorf("%v: 3 of 3 left after denials: %+v, want admitted with none left", limit.Algorithm, d)
				}
			}
		}},
		{Name: "keys and limits that differ are counted apart", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			limits := append(algorithms(calm(1)), semantic.PerHour(1), calm(2))
			for _, key := range []string{"a", "a:b", "{a}", "a}", "%7B", "A"} {
				for _, limit := range limits {
					if d := mustTake(t, l, key, limit.Max, limit); !d.Allowed {
						t.Errorf("%q under %v: denied although nothing was taken from it", key, limit)
					}
				}
			}
		}},
		{Name: "a fixed window opens anew one window after its first hit", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			limit := semantic.Limit{Max: 3, Window: 2 * span}
			first := time.Now()
			mustTake(t, ls[0], "k", 2, limit)
			b.Advance(span)
			mustTake(t, ls[1], "k", 1, limit)
			d := mustTake(t, ls[1], "k", 1, limit)
			if d.Allowed && time.Since(first) < limit.Window {
				t.Errorf("admitted a fourth of 3 within the window")
			}
			if !d.Allowed && (d.RetryAfter > span || d.RetryAfter != d.ResetAfter) {
				t.Errorf("denied with %+v, want to retry when the window ends, %v after its first hit, which is when it is full", d, limit.Window)
			}
			b.Advance(d.RetryAfter)
			for i := range 3 {
				if d := mustTake(t, ls[i%2], "k", 1, limit); !d.Allowed {
					t.Fatalf("take %d in a new window: %+v, want admitted", i+1, d)
				}
			}
		}},
		{Name: "after RetryAfter the same tokens are there", Run: func(t T, b backend) {
			for _, limit := range algorithms(semantic.Limit{Max: 4, Window: span}) {
				for _, n := range []int64{1, 3, 4} {
					ls := b.New(t, 2)
					key := fmt.Sprint("k", n)
					d := mustTake(t, ls[0], key, 4, limit)
					for d.Allowed { // a slow machine may have let some come back
						d = mustTake(t, ls[0], key, n, limit)
					}
					if d.RetryAfter <= 0 || d.RetryAfter > 2*limit.Window {
						t.Fatalf("%v: RetryAfter %v after a denial, want more than 0 and at most two windows", limit.Algorithm, d.RetryAfter)
					}
					b.Advance(d.RetryAfter)
					if d := mustTake(t, ls[1], key, n, limit); !d.Allowed {
						t.Errorf("%v: %d tokens denied after the RetryAfter of their denial: %+v", limit.Algorithm, n, d)
					}
				}
			}
		}},
		{Name: "after ResetAfter the whole budget is there", Run: func(t T, b backend) {
			for _, limit := range algorithms(semantic.Limit{Max: 5, Window: span / 2}) {
				ls := b.New(t, 2)
				d := mustTake(t, ls[0], "k", 5, limit)
				b.Advance(d.ResetAfter)
				if d := mustTake(t, ls[1], "k", 5, limit); !d.Allowed {
					t.Errorf("%v: the budget is not full after its ResetAfter: %+v", limit.Algorithm, d)
				}
			}
		}},
		{Name: "RetryAfter is not longer than needed", Needs: NeedStillClock, Run: func(t T, b backend) {
			for _, limit := range algorithms(semantic.PerSecond(4)) {
				for _, n := range []int64{1, 3, 4} {
					l := b.New(t, 1)[0]
					mustTake(t, l, "k", 4, limit)
					d := mustTake(t, l, "k", n, limit)
					b.Advance(d.RetryAfter - time.Millisecond)
					if d := mustTake(t, l, "k", n, limit); d.Allowed || d.RetryAfter != time.Millisecond {
						t.Errorf("%v: %d tokens one millisecond before RetryAfter: %+v, want denied for that millisecond", limit.Algorithm, n, d)
					}
				}
			}
		}},
		{Name: "a sliding window has no burst at the boundary", Needs: NeedStillClock, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			limit := semantic.PerSecond(100).Sliding()
			// In the second half of a window, as late as can be.
			b.Advance(900 * time.Millisecond)
			admitted := takeAll(t, l, limit)
			b.Advance(200 * time.Millisecond)
			admitted += takeAll(t, l, limit)
			if admitted > 110 {
				t.Errorf("%d admitted within 200 ms around a boundary, want about 100 (a fixed window lets 200 pass)", admitted)
			}
		}},
		{Name: "GCRA spaces admissions evenly after its burst", Needs: NeedStillClock, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			limit := semantic.PerSecond(10).Smooth()
			if n := takeAll(t, l, limit); n != 10 {
				t.Errorf("a burst of %d, want max, 10", n)
			}
			for range 20 {
				b.Advance(100 * time.Millisecond)
				if n := takeAll(t, l, limit); n != 1 {
					t.Errorf("%d admitted after a tenth of the window, want 1", n)
				}
			}
		}},
		{Name: "arguments out of range are refused by name before any I/O", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			defer b.Fault(t, FaultDown)()
			ok := semantic.PerSecond(5)
			for _, c := range []struct {
				key      string
				n        int64
				limit    semantic.Limit
				argument string
			}{
				{"", 1, ok, "key"},
				{"a\nb", 1, ok, "key"},
				{"k", 0, ok, "n"},
				{"k", -1, ok, "n"},
				{"k", 6, ok, "n"}, // could never be admitted
				{"k", 1, semantic.PerSecond(0), "limit.Max"},
				{"k", 1, semantic.PerSecond(-1), "limit.Max"},
				{"k", 1, semantic.Limit{Max: 1}, "limit.Window"},
				{"k", 1, semantic.Limit{Max: 1, Window: 400 * 24 * time.Hour}, "limit.Window"},
				{"k", 1, semantic.Limit{Max: 1, Window: time.Second, Algorithm: 9}, "limit.Algorithm"},
			} {
				_, err := l.TryAcquire(t.Context(), c.key, c.n, c.limit)
				wantArgument(t, err, c.argument)
				wantArgument(t, l.Acquire(t.Context(), c.key, c.n, c.limit), c.argument)
			}
		}},
	}
}

// mustTake is a TryAcquire that must be answered.
func mustTake(t T, l semantic.RateLimiter, key string, n int64, limit semantic.Limit) semantic.Decision {
	t.Helper()
	d, err := l.TryAcquire(t.Context(), key, n, limit)
	if err != nil {
		t.Errorf("TryAcquire(%q, %d, %v): %v", key, n, limit, err)
	}
	if d.Allowed && d.RetryAfter != 0 || d.Remaining < 0 || d.Remaining > limit.Max || d.RetryAfter < 0 || d.ResetAfter < 0 {
		t.Errorf("TryAcquire(%q, %d, %v): impossible decision %+v", key, n, limit, d)
	}
	return d
}

// takeAll takes single tokens until one is denied, and returns how many it got.
func takeAll(t T, l semantic.RateLimiter, limit semantic.Limit) (admitted int) {
	t.Helper()
	for range 2*limit.Max + 1 {
		if !mustTake(t, l, "k", 1, limit).Allowed {
			return admitted
		}
		admitted++
	}
	t.Errorf("more than twice the budget was admitted at once")
	return admitted
}

func limiterFaultCases() []limiterCase {
	type backend = Backend[semantic.RateLimiter]
	return []limiterCase{
		{Name: "an outage is an error and never an admission", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			mustTake(t, l, "warm", 1, calm(5))
			heal := b.Fault(t, FaultDown)
			for _, limit := range algorithms(calm(5)) {
				d, err := l.TryAcquire(t.Context(), "k", 1, limit)
				if d.Allowed || !errors.Is(err, semantic.ErrUnavailable) {
					t.Errorf("TryAcquire during an outage: %+v, %v, want not allowed and ErrUnavailable", d, err)
				}
				if err := l.Acquire(t.Context(), "k", 1, limit); !errors.Is(err, semantic.ErrUnavailable) {
					t.Errorf("Acquire during an outage: %v, want ErrUnavailable", err)
				}
			}
			heal()
			if d := mustTake(t, l, "k", 5, calm(5)); !d.Allowed {
				t.Errorf("calls that failed with ErrUnavailable were counted: %+v", d)
			}
		}},
		{Name: "a lost reply is an unknown outcome, counted at most once", Needs: NeedFaults, Run: func(t T, b backend) {
			for _, limit := range algorithms(calm(10)) {
				l := b.New(t, 1)[0]
				mustTake(t, l, "k", 1, limit)
				heal := b.Fault(t, FaultLoseReply)
				d, err := l.TryAcquire(t.Context(), "k", 4, limit)
				heal()
				if d.Allowed || !errors.Is(err, semantic.ErrUnknown) {
					t.Errorf("%v: reply lost: %+v, %v, want not allowed and ErrUnknown", limit.Algorithm, d, err)
				}
				if d := mustTake(t, l, "k", 1, limit); d.Remaining < 10-1-4-1 {
					t.Errorf("%v: %d left after takes of 1, 4 and 1 of 10: a lost reply was counted twice", limit.Algorithm, d.Remaining)
				}
			}
		}},
		{Name: "a lost reply ends one Acquire and admits nobody", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			limit := calm(10)
			mustTake(t, l, "k", 1, limit)
			heal := b.Fault(t, FaultLoseReply)
			err := l.Acquire(t.Context(), "k", 4, limit)
			heal()
			if !errors.Is(err, semantic.ErrUnknown) {
				t.Errorf("Acquire whose reply was lost: %v, want ErrUnknown", err)
			}
			if d := mustTake(t, l, "k", 1, limit); d.Remaining < 10-1-4-1 {
				t.Errorf("%d left after takes of 1, 4 and 1 of 10: a lost reply was counted twice", d.Remaining)
			}
		}},
		{Name: "a call to a silent backend ends with its context", Needs: NeedFaults, Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			mustTake(t, l, "warm", 1, calm(5))
			heal := b.Fault(t, FaultHang)
			defer heal()
			for name, call := range map[string]func(context.Context) error{
				"TryAcquire": func(ctx context.Context) error {
					_, err := l.TryAcquire(ctx, "k", 1, calm(5))
					return err
				},
				"Acquire": func(ctx context.Context) error { return l.Acquire(ctx, "k", 1, calm(5)) },
			} {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- call(ctx) }()
				waitUntilAsked(b)
				cancel()
				if err := receive(t, done, name+" to return after its cancel"); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v, want the context's error", name, err)
				}
			}
		}},
	}
}
