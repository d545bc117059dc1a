package testkit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// logRaceCases race many callers for one record.
func logRaceCases() []logCase {
	// race prepares a record as replica 0, lets many callers request at once, and
	// wants exactly one of them to acquire and the others to get its attempt.
	race := func(req semantic.IdempotencyRequest, attempt int, prepare func(t T, b logBackend, l semantic.IdempotencyLog)) func(T, logBackend) {
		return func(t T, b logBackend) {
			for range 4 {
				ls := b.New(t, 4)
				prepare(t, b, ls[0])
				results := logAtOnce(16, func(i int) semantic.AcquireResult { return ls[i%len(ls)].TryAcquire(t.Context(), req) })
				var winner semantic.RecordID
				won := 0
				for _, res := range results {
					if res.Acquired {
						won++
						winner = res.Record.ID
					}
				}
				if won != 1 {
					t.Fatalf("%d of %d concurrent callers acquired, want exactly 1", won, len(results))
				}
				for _, res := range results {
					if !res.Acquired && (res.Reason != semantic.ReasonDuplicate || res.Record.ID != winner) {
						t.Errorf("a loser got %+v, want a duplicate of %s", res, winner)
					}
				}
				if got := logDuplicate(t, ls[1], logRequest()); got.ID != winner || got.Attempt != attempt {
					t.Errorf("record %+v, want attempt %d of the winner %s", got, attempt, winner)
				}
			}
		}
	}
	fail := func(t T, b logBackend, l semantic.IdempotencyLog) {
		logFinalize(t, l, logAcquire(t, l, logRequest()).ID, failed, nil)
	}
	return []logCase{
		// mongoose#7183, beanie#1350, dbos-transact-py#544: the same key started concurrently.
		{Name: "of many concurrent callers exactly one acquires", Run: race(logRequest(), 1, func(T, logBackend, semantic.IdempotencyLog) {})},
		{Name: "of many concurrent retries exactly one acquires", Needs: NeedAtomicUpdate, Run: race(logRequest(retryFailed), 2, fail)},
		{Name: "of many concurrent takeovers exactly one acquires", Needs: NeedAtomicUpdate, Run: race(logRequest(takeOverAfter(time.Minute)), 2,
			func(t T, b logBackend, l semantic.IdempotencyLog) {
				logAcquire(t, l, logRequest())
				b.Advance(time.Hour)
			})},
		{Name: "of many concurrent callers after expiry exactly one acquires", Needs: NeedAtomicUpdate, Run: race(logRequest(), 1,
			func(t T, b logBackend, l semantic.IdempotencyLog) {
				fail(t, b, l)
				b.Advance(3 * day)
			})},
		{Name: "of concurrent finalizations that differ exactly one is recorded", Needs: NeedAtomicUpdate, Run: func(t T, b logBackend) {
			for range 4 {
				ls := b.New(t, 2)
				r := logAcquire(t, ls[0], logRequest())
				status := func(i int) semantic.IdempotencyStatus {
					if i%2 == 0 {
						return completed
					}
					return failed
				}
				errs := logAtOnce(8, func(i int) error {
					return ls[i%2].Finalize(t.Context(), r.ID, semantic.Finalization{Status: status(i), Metadata: map[string]string{"by": fmt.Sprint(i)}})
				})
				got := logDuplicate(t, ls[0], logRequest())
				for i, err := range errs {
					if status(i) == got.Status && err != nil || status(i) != got.Status && !errors.Is(err, semantic.ErrSuperseded) {
						t.Errorf("%s is recorded, finalize %s said %v", got.Status, status(i), err)
					}
				}
			}
		}},
	}
}

// logAtOnce runs f(0) to f(n-1) concurrently.
func logAtOnce[R any](n int, f func(i int) R) []R {
	results := make([]R, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			results[i] = f(i)
		})
	}
	close(start)
	all.Wait()
	return results
}

// logFaultCases are the promises about failures.
func logFaultCases() []logCase {
	needs := func(name string, run func(t T, b logBackend)) logCase {
		return logCase{Name: name, Needs: NeedFaults, Run: run}
	}
	// bounded is a context for calls that a fault keeps from ending by themselves.
	bounded := func(t T) (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 2*time.Second)
	}
	return []logCase{
		needs("an outage is an error, never an acquisition, and nothing is written", func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			heal := b.Fault(t, FaultDown)
			ctx, cancel := bounded(t)
			defer cancel()
			res := l.TryAcquire(ctx, logRequest())
			if res.Acquired || res.Reason != semantic.ReasonError || !errors.Is(res.Err, semantic.ErrUnavailable) || errors.Is(res.Err, semantic.ErrUnknown) {
				t.Errorf("acquire: %+v, want reason error and ErrUnavailable", res)
			}
			heal()
			r := logEventually(t, l, logRequest())
			if r.Attempt != 1 {
				t.Errorf("record %+v, want attempt 1", r)
			}
		}),
		// powertools-lambda-typescript#2944: a failed save of the outcome is not a failed effect.
		needs("a finalize during an outage says so and can be repeated", func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			r := logAcquire(t, l, logRequest())
			heal := b.Fault(t, FaultDown)
			ctx, cancel := bounded(t)
			defer cancel()
			if err := l.Finalize(ctx, r.ID, semantic.Finalization{Status: completed}); !errors.Is(err, semantic.ErrUnavailable) || errors.Is(err, semantic.ErrUnknown) {
				t.Errorf("finalize: %v, want ErrUnavailable", err)
			}
			heal()
			if !eventually(func() bool {
				return l.Finalize(t.Context(), r.ID, semantic.Finalization{Status: completed}) == nil
			}) {
				t.Fatalf("finalize does not work after the outage")
			}
			if got := logDuplicate(t, l, logRequest()); got.Status != completed {
				t.Errorf("record %+v, want COMPLETED", got)
			}
		}),
		needs("a lost reply of an acquire is resolved as one's own", func(t T, b logBackend) {
			ls := b.New(t, 2)
			defer b.Fault(t, FaultLoseReply)()
			r := logAcquire(t, ls[0], logRequest())
			if r.Attempt != 1 || r.TakenOver {
				t.Errorf("record %+v, want attempt 1, not taken over", r)
			}
			sameRecord(t, "its duplicate", logDuplicate(t, ls[1], logRequest()), r)
			logFinalize(t, ls[0], r.ID, completed, nil)
		}),
		needs("a lost reply of a retry or takeover is resolved as one's own", func(t T, b logBackend) {
			for _, takeover := range []bool{false, true} {
				ls := b.New(t, 2)
				first := logAcquire(t, ls[1], logRequest())
				if !takeover {
					logFinalize(t, ls[1], first.ID, failed, nil)
				}
				b.Advance(time.Hour)
				// The least age: one's own first try must not be taken over.
				req := logRequest(retryFailed, takeOverAfter(time.Millisecond))
				heal := b.Fault(t, FaultLoseReply)
				r := logAcquire(t, ls[0], req)
				heal()
				if r.Attempt != 2 || r.TakenOver != takeover {
					t.Errorf("record %+v, want attempt 2 and TakenOver %t", r, takeover)
				}
				sameRecord(t, "its duplicate", logDuplicate(t, ls[1], logRequest()), r)
			}
		}),
		needs("a lost reply of a duplicate is resolved as a duplicate", func(t T, b logBackend) {
			ls := b.New(t, 2)
			r := logAcquire(t, ls[0], logRequest())
			defer b.Fault(t, FaultLoseReply)()
			sameRecord(t, "duplicate", logDuplicate(t, ls[1], logRequest()), r)
		}),
		needs("a lost reply of a finalize is resolved", func(t T, b logBackend) {
			ls := b.New(t, 2)
			r := logAcquire(t, ls[0], logRequest())
			heal := b.Fault(t, FaultLoseReply)
			logFinalize(t, ls[0], r.ID, completed, map[string]string{"k": "v"})
			heal()
			if got := logDuplicate(t, ls[1], logRequest()); got.Status != completed || got.Metadata["k"] != "v" {
				t.Errorf("record %+v, want COMPLETED with its metadata", got)
			}
		}),
		needs("an acquire whose replies are all lost is unknown, and at most one attempt", func(t T, b logBackend) {
			ls := b.New(t, 2)
			heal := b.Fault(t, FaultLoseReplies)
			ctx, cancel := bounded(t)
			defer cancel()
			res := ls[0].TryAcquire(ctx, logRequest())
			if res.Acquired || res.Reason != semantic.ReasonError || !errors.Is(res.Err, semantic.ErrUnknown) || errors.Is(res.Err, semantic.ErrUnavailable) {
				t.Errorf("acquire: %+v, want reason error and ErrUnknown", res)
			}
			heal()
			var got semantic.AcquireResult
			if !eventually(func() bool {
				got = ls[1].TryAcquire(t.Context(), logRequest())
				return got.Reason != semantic.ReasonError
			}) || got.Acquired || got.Record.Attempt != 1 || got.Record.Status != pending {
				t.Errorf("afterwards %+v, want a duplicate of attempt 1, PENDING", got)
			}
		}),
		needs("a finalize whose replies are all lost is unknown", func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			r := logAcquire(t, l, logRequest())
			heal := b.Fault(t, FaultLoseReplies)
			ctx, cancel := bounded(t)
			defer cancel()
			if err := l.Finalize(ctx, r.ID, semantic.Finalization{Status: completed}); !errors.Is(err, semantic.ErrUnknown) {
				t.Errorf("finalize: %v, want ErrUnknown", err)
			}
			heal()
		}),
		needs("a cancelled call returns promptly with the context's error", func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			r := logAcquire(t, l, logRequest())
			defer b.Fault(t, FaultHang)()
			for name, call := range map[string]func(ctx context.Context) error{
				"acquire": func(ctx context.Context) error {
					res := l.TryAcquire(ctx, logRequest(func(r *semantic.IdempotencyRequest) { r.Key = "other" }))
					if res.Acquired || res.Reason != semantic.ReasonError {
						t.Errorf("acquire: %+v, want reason error", res)
					}
					return res.Err
				},
				"finalize": func(ctx context.Context) error {
					return l.Finalize(ctx, r.ID, semantic.Finalization{Status: completed})
				},
			} {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- call(ctx) }()
				waitUntilAsked(b)
				cancelled := time.Now()
				cancel()
				err := receive(t, ended, name+" to return after its cancel")
				if took := time.Since(cancelled); took > time.Second {
					t.Errorf("%s returned %v after its cancel", name, took)
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v, want the context's error", name, err)
				}
			}
		}),
		{Name: "a call whose context has ended writes nothing", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			res := l.TryAcquire(ctx, logRequest())
			if res.Acquired || res.Reason != semantic.ReasonError || !errors.Is(res.Err, context.Canceled) || !errors.Is(res.Err, semantic.ErrUnavailable) {
				t.Errorf("acquire: %+v, want ErrUnavailable and the context's error", res)
			}
			r := logAcquire(t, l, logRequest())
			if err := l.Finalize(ctx, r.ID, semantic.Finalization{Status: completed}); !errors.Is(err, context.Canceled) {
				t.Errorf("finalize: %v, want the context's error", err)
			}
			if got := logDuplicate(t, l, logRequest()); got.Status != pending {
				t.Errorf("record %+v, want it PENDING", got)
			}
		}},
	}
}

// logEventually acquires once the backend is reachable again.
func logEventually(t T, l semantic.IdempotencyLog, req semantic.IdempotencyRequest) semantic.IdempotencyRecord {
	t.Helper()
	var res semantic.AcquireResult
	if !eventually(func() bool {
		res = l.TryAcquire(t.Context(), req)
		return res.Reason != semantic.ReasonError
	}) || !res.Acquired {
		t.Fatalf("acquire after the outage: %+v, want it acquired", res)
	}
	return res.Record
}
