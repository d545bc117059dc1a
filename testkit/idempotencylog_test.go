package testkit_test

import (
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// logDouble is a harness of the double over a controllable clock; wrap, which may be
// nil, breaks the clients.
func logDouble(wrap func(b *testkit.IdempotencyLogBackend, l *testkit.IdempotencyLog) semantic.IdempotencyLog) testkit.Backend[semantic.IdempotencyLog] {
	clock := testkit.NewClock()
	var backend *testkit.IdempotencyLogBackend
	return testkit.Backend[semantic.IdempotencyLog]{
		New: func(_ testkit.T, n int) []semantic.IdempotencyLog {
			backend = testkit.NewIdempotencyLogBackend(clock)
			var ls []semantic.IdempotencyLog
			for range n {
				if wrap == nil {
					ls = append(ls, backend.Client())
				} else {
					ls = append(ls, wrap(backend, backend.Client()))
				}
			}
			return ls
		},
		Advance: clock.Advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	}
}

func TestIdempotencyLogDouble(t *testing.T) {
	testkit.RunIdempotencyLog(t, logDouble(nil))
}

// go-mgo/mgo#313, beanie PR#1353: the rival writes exactly between two steps.
func TestIdempotencyLogDoubleLetsARivalStepAhead(t *testing.T) {
	b := testkit.NewIdempotencyLogBackend(testkit.NewClock())
	mine, rival := b.Client(), b.Client()
	req := semantic.IdempotencyRequest{OrganizationID: "o", Domain: "d", Key: "k", TTLDays: 1}
	b.BeforeNext(func() {
		if !rival.TryAcquire(t.Context(), req).Acquired {
			t.Error("the rival did not acquire")
		}
	})
	if res := mine.TryAcquire(t.Context(), req); res.Acquired || res.Reason != semantic.ReasonDuplicate {
		t.Errorf("%+v, want a duplicate of the rival's attempt", res)
	}
	if r, ok := b.Record("o", "d", "k"); !ok || r.Attempt != 1 || b.Requests() != 2 {
		t.Errorf("record %+v after %d requests, want one attempt and two requests", r, b.Requests())
	}
}

func TestIdempotencyLogDoubleOnTheSystemClock(t *testing.T) {
	l := testkit.NewIdempotencyLog(nil)
	before := time.Now().Add(-time.Millisecond)
	res := l.TryAcquire(t.Context(), semantic.IdempotencyRequest{OrganizationID: "o", Domain: "d", Key: "k", TTLDays: 1})
	if !res.Acquired || res.Record.AttemptedAt.Before(before) || res.Record.AttemptedAt.After(time.Now()) {
		t.Errorf("%+v, want it acquired now", res)
	}
}
