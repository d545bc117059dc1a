package testkit

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// brokenLog is a client with a bug: the functions that are not nil replace the
// double's.
type brokenLog struct {
	*IdempotencyLog
	acquire  func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult
	finalize func(l *IdempotencyLog, ctx context.Context, id semantic.RecordID, f semantic.Finalization) error
}

func (b *brokenLog) TryAcquire(ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
	if b.acquire == nil {
		return b.IdempotencyLog.TryAcquire(ctx, req)
	}
	return b.acquire(b.IdempotencyLog, ctx, req)
}

func (b *brokenLog) Finalize(ctx context.Context, id semantic.RecordID, f semantic.Finalization) error {
	if b.finalize == nil {
		return b.IdempotencyLog.Finalize(ctx, id, f)
	}
	return b.finalize(b.IdempotencyLog, ctx, id, f)
}

func TestIdempotencyLogSuiteCatchesBrokenLogs(t *testing.T) {
	type acquire = func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult
	bugs := []struct {
		bug    string
		rule   func(r *logRule)
		client brokenLog
		caught string // the case that must fail
	}{
		{bug: "expiry ignored", caught: "an expired record is forgotten, though it is still stored",
			rule: func(r *logRule) {
				r.replace = func(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool {
					return now.Before(r.ExpiresAt) && replaceable(r, req, now)
				}
			}},
		{bug: "expired a millisecond late", caught: "expiry is exact to the millisecond",
			rule: func(r *logRule) {
				r.replace = func(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool {
					return !now.Equal(r.ExpiresAt) && replaceable(r, req, now)
				}
			}},
		{bug: "expired a millisecond early", caught: "expiry is exact to the millisecond",
			rule: func(r *logRule) {
				r.replace = func(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool {
					return replaceable(r, req, now.Add(time.Millisecond))
				}
			}},
		{bug: "FAILED retried without being asked", caught: "by default any live record blocks",
			rule: func(r *logRule) {
				r.replace = func(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool {
					req.RetryFailed = true
					return replaceable(r, req, now)
				}
			}},
		{bug: "FAILED never retried", caught: "RetryFailed takes the place of a FAILED attempt only",
			rule: func(r *logRule) {
				r.replace = func(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool {
					req.RetryFailed = false
					return replaceable(r, req, now)
				}
			}},
		{bug: "takeover age ignored", caught: "a takeover of an old PENDING attempt is visible",
			rule: func(r *logRule) {
				r.replace = func(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool {
					return req.TakeOverPendingAfter > 0 && r.Status == semantic.StatusPending || replaceable(r, req, now)
				}
			}},
		{bug: "finished attempts taken over", caught: "a takeover leaves finished attempts alone",
			rule: func(r *logRule) {
				r.replace = func(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool {
					return req.TakeOverPendingAfter > 0 || replaceable(r, req, now)
				}
			}},
		{bug: "takeover not visible", caught: "a takeover of an old PENDING attempt is visible",
			client: brokenLog{acquire: func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
				res := l.TryAcquire(ctx, req)
				res.Record.Attempt, res.Record.TakenOver = 1, false
				return res
			}}},
		{bug: "fingerprint ignored", caught: "another fingerprint is a conflict and changes nothing",
			rule: func(r *logRule) {
				r.conflict = func(*logRecord, semantic.IdempotencyRequest) bool { return false }
			}},
		{bug: "missing fingerprint conflicts", caught: "a request or record without fingerprint conflicts with none",
			rule: func(r *logRule) {
				r.conflict = func(r *logRecord, req semantic.IdempotencyRequest) bool { return r.Fingerprint != req.Fingerprint }
			}},
		{bug: "finalize without a fence", caught: "a zombie's finalize is refused and writes nothing",
			rule: func(r *logRule) {
				r.current = func(*logRecord, string, time.Time) bool { return true }
			}},
		{bug: "finalize after expiry", caught: "an expired attempt cannot be finalized",
			rule: func(r *logRule) {
				r.current = func(r *logRecord, attemptID string, _ time.Time) bool { return r.attemptID == attemptID }
			}},
		{bug: "second finalize swallowed", caught: "a finalized attempt cannot be finalized otherwise",
			client: brokenLog{finalize: func(l *IdempotencyLog, ctx context.Context, id semantic.RecordID, f semantic.Finalization) error {
				_ = l.Finalize(ctx, id, f)
				return nil
			}}},
		{bug: "second finalize refused", caught: "finalizing twice with the same status is fine, and the first metadata stays",
			rule: func(r *logRule) {
				r.current = func(r *logRecord, attemptID string, _ time.Time) bool {
					return r.attemptID == attemptID && r.Status == semantic.StatusPending
				}
			}},
		{bug: "own attempt not recognised", caught: "a lost reply of an acquire is resolved as one's own",
			rule: func(r *logRule) { r.own = func(*logRecord, string) bool { return false } }},
		{bug: "own attempt taken over", caught: "a lost reply of a retry or takeover is resolved as one's own",
			rule: func(r *logRule) {
				r.own = func(*logRecord, string) bool { return false }
				r.replace = func(*logRecord, semantic.IdempotencyRequest, time.Time) bool { return true }
			}},
		{bug: "duplicate without its record", caught: "a duplicate carries the existing record with status and metadata",
			client: brokenLog{acquire: func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
				res := l.TryAcquire(ctx, req)
				if !res.Acquired {
					res.Record = semantic.IdempotencyRecord{}
				}
				return res
			}}},
		{bug: "domain left out of the identity", caught: "organisation, domain and key together are the identity",
			client: brokenLog{acquire: func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
				req.Domain = "d"
				return l.TryAcquire(ctx, req)
			}}},
		{bug: "metadata dropped", caught: "a duplicate carries the existing record with status and metadata",
			client: brokenLog{finalize: func(l *IdempotencyLog, ctx context.Context, id semantic.RecordID, f semantic.Finalization) error {
				f.Metadata = nil
				return l.Finalize(ctx, id, f)
			}}},
		{bug: "fails open", caught: "an outage is an error, never an acquisition, and nothing is written",
			client: brokenLog{acquire: func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
				res := l.TryAcquire(ctx, req)
				res.Acquired = res.Acquired || res.Reason == semantic.ReasonError
				return res
			}}},
		{bug: "unknown called unavailable", caught: "an acquire whose replies are all lost is unknown, and at most one attempt",
			client: brokenLog{acquire: func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
				res := l.TryAcquire(ctx, req)
				if res.Err != nil {
					res.Err = semantic.ErrUnavailable
				}
				return res
			}}},
		{bug: "context ignored", caught: "a cancelled call returns promptly with the context's error",
			client: brokenLog{acquire: func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
				slow, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
				defer cancel()
				return l.TryAcquire(slow, req)
			}}},
		{bug: "arguments not checked", caught: "invalid arguments are refused by name",
			client: brokenLog{acquire: func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
				req.TTLDays = min(max(req.TTLDays, 1), semantic.MaxTTLDays)
				return l.TryAcquire(ctx, req)
			}}},
	}
	cases := map[string]logCase{}
	for _, c := range IdempotencyLogCases() {
		cases[c.Name] = c
	}
	check := func(bug, caught string, b logBackend) {
		c, ok := cases[caught]
		if !ok {
			t.Errorf("%s: there is no case %q", bug, caught)
			return
		}
		if len(Failures(c, b)) == 0 {
			t.Errorf("%s: the case %q does not catch it", bug, caught)
		}
	}
	for _, bug := range bugs {
		check(bug.bug, bug.caught, brokenLogs(bug.rule, func(l *IdempotencyLog) semantic.IdempotencyLog {
			client := bug.client
			client.IdempotencyLog = l
			return &client
		}))
	}

	// Looking first and acquiring then is the classic. It needs a race to be seen: the
	// first two callers have looked before either acquires.
	var looked atomic.Int32
	check("look, then acquire", "of many concurrent callers exactly one acquires", brokenLogs(nil, func(l *IdempotencyLog) semantic.IdempotencyLog {
		var look acquire = func(l *IdempotencyLog, ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
			_, exists := l.backend.Record(req.OrganizationID, req.Domain, req.Key)
			looked.Add(1)
			for looked.Load() < 2 {
				runtime.Gosched()
			}
			res := l.TryAcquire(ctx, req)
			res.Acquired = res.Acquired || !exists
			return res
		}
		return &brokenLog{IdempotencyLog: l, acquire: look}
	}))
}

// brokenLogs is a harness of doubles with a bug.
func brokenLogs(rule func(*logRule), client func(l *IdempotencyLog) semantic.IdempotencyLog) logBackend {
	clock := NewClock()
	var backend *IdempotencyLogBackend
	return logBackend{
		New: func(_ T, n int) []semantic.IdempotencyLog {
			backend = NewIdempotencyLogBackend(clock)
			if rule != nil {
				rule(&backend.rule)
			}
			var ls []semantic.IdempotencyLog
			for range n {
				ls = append(ls, client(backend.Client()))
			}
			return ls
		},
		Advance: clock.Advance,
		Fault:   func(_ T, f Fault) (heal func()) { return backend.Inject(f) },
	}
}
