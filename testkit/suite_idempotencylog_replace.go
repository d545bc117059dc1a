package testkit

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// logReplaceCases are the promises about expiry, retry, takeover and fingerprints.
func logReplaceCases() []logCase {
	return []logCase{
		{Name: "an expired record is forgotten, though it is still stored", Run: func(t T, b logBackend) {
			for _, status := range []semantic.IdempotencyStatus{pending, failed, completed} {
				ls := b.New(t, 2)
				first := logAcquire(t, ls[0], logRequest(fingerprint("old")))
				if status != pending {
					logFinalize(t, ls[0], first.ID, status, map[string]string{"old": "yes"})
				}
				b.Advance(2*day + time.Hour)
				second := logAcquire(t, ls[1], logRequest(fingerprint("new")))
				if second.Attempt != 1 || second.TakenOver || second.Status != pending || len(second.Metadata) != 0 || second.Fingerprint != "new" || second.ID == first.ID {
					t.Errorf("after a %s one expired: %+v, want a new beginning", status, second)
				}
				sameRecord(t, "its duplicate", logDuplicate(t, ls[0], logRequest()), second)
			}
		}},
		{Name: "expiry is exact to the millisecond", Needs: NeedStillClock, Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			logAcquire(t, l, logRequest())
			b.Advance(2*day - time.Millisecond)
			logDuplicate(t, l, logRequest())
			b.Advance(time.Millisecond)
			logAcquire(t, l, logRequest())
			b.Advance(2*day + time.Millisecond)
			logAcquire(t, l, logRequest())
		}},
		// asynq#492: a failed task with a fixed id blocks its schedule for ever.
		{Name: "RetryFailed takes the place of a FAILED attempt only", Run: func(t T, b logBackend) {
			ls := b.New(t, 2)
			first := logAcquire(t, ls[0], logRequest())
			logDuplicate(t, ls[1], logRequest(retryFailed)) // PENDING
			logFinalize(t, ls[0], first.ID, failed, map[string]string{"error": "refused"})
			second := logAcquire(t, ls[1], logRequest(retryFailed))
			if second.Attempt != 2 || second.TakenOver || second.Status != pending || len(second.Metadata) != 0 || second.ID == first.ID {
				t.Errorf("retry %+v, want attempt 2, PENDING, not taken over, no metadata, an id of its own", second)
			}
			logFinalize(t, ls[1], second.ID, completed, nil)
			if got := logDuplicate(t, ls[0], logRequest(retryFailed)); got.Status != completed || got.Attempt != 2 {
				t.Errorf("duplicate %+v, want attempt 2 COMPLETED", got)
			}
		}},
		{Name: "a retry is remembered for its own days", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			logFinalize(t, l, logAcquire(t, l, logRequest()).ID, failed, nil)
			b.Advance(day)
			r := logAcquire(t, l, logRequest(retryFailed, func(r *semantic.IdempotencyRequest) { r.TTLDays = 5 }))
			if got := r.ExpiresAt.Sub(r.AttemptedAt); got != 5*day {
				t.Errorf("the retry is remembered for %v, want 5 days from its own beginning", got)
			}
			b.Advance(4 * day)
			logDuplicate(t, l, logRequest())
		}},
		// powertools-lambda-python#8049: a takeover that nobody sees repeats a withdrawal.
		{Name: "a takeover of an old PENDING attempt is visible", Run: func(t T, b logBackend) {
			ls := b.New(t, 2)
			first := logAcquire(t, ls[0], logRequest())
			b.Advance(50 * time.Minute)
			logDuplicate(t, ls[1], logRequest(takeOverAfter(time.Hour)))
			b.Advance(11 * time.Minute)
			second := logAcquire(t, ls[1], logRequest(takeOverAfter(time.Hour)))
			if second.Attempt != 2 || !second.TakenOver || second.Status != pending || second.ID == first.ID {
				t.Errorf("takeover %+v, want attempt 2, PENDING, taken over, an id of its own", second)
			}
			sameRecord(t, "its duplicate", logDuplicate(t, ls[0], logRequest()), second)
			// Its age counts from its own beginning.
			logDuplicate(t, ls[0], logRequest(takeOverAfter(time.Hour)))
			b.Advance(61 * time.Minute)
			if third := logAcquire(t, ls[0], logRequest(takeOverAfter(time.Hour))); third.Attempt != 3 || !third.TakenOver {
				t.Errorf("second takeover %+v, want attempt 3, taken over", third)
			}
		}},
		{Name: "takeover age is exact to the millisecond", Needs: NeedStillClock, Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			logAcquire(t, l, logRequest())
			b.Advance(time.Minute - time.Millisecond)
			logDuplicate(t, l, logRequest(takeOverAfter(time.Minute)))
			b.Advance(time.Millisecond)
			logAcquire(t, l, logRequest(takeOverAfter(time.Minute)))
		}},
		{Name: "a takeover leaves finished attempts alone", Run: func(t T, b logBackend) {
			for _, status := range []semantic.IdempotencyStatus{failed, completed} {
				l := b.New(t, 1)[0]
				logFinalize(t, l, logAcquire(t, l, logRequest()).ID, status, nil)
				b.Advance(day)
				if got := logDuplicate(t, l, logRequest(takeOverAfter(time.Minute))); got.Status != status {
					t.Errorf("duplicate %+v, want %s", got, status)
				}
			}
		}},
		{Name: "a retry that followed a takeover is not a takeover itself", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			logAcquire(t, l, logRequest())
			b.Advance(time.Hour)
			second := logAcquire(t, l, logRequest(takeOverAfter(time.Minute)))
			logFinalize(t, l, second.ID, failed, nil)
			if third := logAcquire(t, l, logRequest(retryFailed)); third.Attempt != 3 || third.TakenOver {
				t.Errorf("retry %+v, want attempt 3, not taken over", third)
			}
		}},
		// dbos-transact-ts#725: a clashing start broke the recovery of the first.
		{Name: "another fingerprint is a conflict and changes nothing", Run: func(t T, b logBackend) {
			ls := b.New(t, 2)
			first := logAcquire(t, ls[0], logRequest(fingerprint("f1")))
			b.Advance(5 * time.Millisecond)
			widest := logRequest(fingerprint("f2"), retryFailed, takeOverAfter(time.Millisecond))
			sameRecord(t, "conflict with a PENDING one", logRefuse(t, ls[1], widest, semantic.ReasonConflict), first)
			logFinalize(t, ls[0], first.ID, failed, map[string]string{"k": "v"})
			first.Status, first.Metadata = failed, map[string]string{"k": "v"}
			sameRecord(t, "conflict with a FAILED one", logRefuse(t, ls[1], widest, semantic.ReasonConflict), first)
			sameRecord(t, "the record after the conflicts", logDuplicate(t, ls[1], logRequest(fingerprint("f1"))), first)
			if r := logAcquire(t, ls[1], logRequest(fingerprint("f1"), retryFailed)); r.Attempt != 2 {
				t.Errorf("retry with the same fingerprint: %+v, want attempt 2", r)
			}
		}},
		{Name: "a request or record without fingerprint conflicts with none", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			with := logAcquire(t, l, logRequest(fingerprint("f1")))
			logDuplicate(t, l, logRequest())
			logFinalize(t, l, with.ID, failed, nil)
			if r := logAcquire(t, l, logRequest(retryFailed)); r.Fingerprint != "f1" {
				t.Errorf("a retry without fingerprint made it %q, want the recorded one kept", r.Fingerprint)
			}
			logRefuse(t, l, logRequest(fingerprint("f2")), semantic.ReasonConflict)

			other := func(r *semantic.IdempotencyRequest) { r.Key = "booking-2" }
			without := logAcquire(t, l, logRequest(other))
			logDuplicate(t, l, logRequest(other, fingerprint("f3")))
			logFinalize(t, l, without.ID, failed, nil)
			if r := logAcquire(t, l, logRequest(other, fingerprint("f3"), retryFailed)); r.Fingerprint != "f3" {
				t.Errorf("a retry with a fingerprint recorded %q, want f3", r.Fingerprint)
			}
		}},
	}
}

// logFinalizeCases are the promises of Finalize.
func logFinalizeCases() []logCase {
	return []logCase{
		// powertools-lambda-typescript#5675: who never acquired frees the holder's lock.
		{Name: "a zombie's finalize is refused and writes nothing", Run: func(t T, b logBackend) {
			ls := b.New(t, 2)
			zombie := logAcquire(t, ls[0], logRequest())
			b.Advance(time.Hour)
			successor := logAcquire(t, ls[1], logRequest(takeOverAfter(time.Minute)))
			for _, status := range []semantic.IdempotencyStatus{completed, failed} {
				logSuperseded(t, ls[0], zombie.ID, status)
			}
			sameRecord(t, "the record", logDuplicate(t, ls[0], logRequest()), successor)
			logFinalize(t, ls[1], successor.ID, completed, map[string]string{"by": "successor"})
			for _, status := range []semantic.IdempotencyStatus{completed, failed} {
				logSuperseded(t, ls[0], zombie.ID, status)
			}
			got := logDuplicate(t, ls[0], logRequest())
			if got.Status != completed || !maps.Equal(got.Metadata, map[string]string{"by": "successor"}) {
				t.Errorf("record %+v, want it as the successor finalized it", got)
			}
		}},
		{Name: "finalizing twice with the same status is fine, and the first metadata stays", Run: func(t T, b logBackend) {
			for _, status := range []semantic.IdempotencyStatus{completed, failed} {
				l := b.New(t, 1)[0]
				r := logAcquire(t, l, logRequest())
				logFinalize(t, l, r.ID, status, map[string]string{"n": "1"})
				logFinalize(t, l, r.ID, status, map[string]string{"n": "2"})
				if got := logDuplicate(t, l, logRequest()); got.Status != status || got.Metadata["n"] != "1" {
					t.Errorf("record %+v, want %s with the first metadata", got, status)
				}
			}
		}},
		// river#1302: a rescuer overwrote a job completed after its stale read.
		{Name: "a finalized attempt cannot be finalized otherwise", Run: func(t T, b logBackend) {
			for first, second := range map[semantic.IdempotencyStatus]semantic.IdempotencyStatus{completed: failed, failed: completed} {
				l := b.New(t, 1)[0]
				r := logAcquire(t, l, logRequest())
				logFinalize(t, l, r.ID, first, map[string]string{"n": "1"})
				logSuperseded(t, l, r.ID, second)
				if got := logDuplicate(t, l, logRequest()); got.Status != first || got.Metadata["n"] != "1" {
					t.Errorf("record %+v, want %s as it was", got, first)
				}
			}
		}},
		{Name: "an expired attempt cannot be finalized", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			open := logAcquire(t, l, logRequest())
			b.Advance(2*day + time.Hour)
			logSuperseded(t, l, open.ID, completed)
			next := logAcquire(t, l, logRequest())
			logSuperseded(t, l, open.ID, completed)
			sameRecord(t, "the record that follows", logDuplicate(t, l, logRequest()), next)
		}},
		{Name: "another replica may finalize, by the record's id", Run: func(t T, b logBackend) {
			ls := b.New(t, 2)
			logFinalize(t, ls[1], logAcquire(t, ls[0], logRequest()).ID, completed, nil)
			if got := logDuplicate(t, ls[0], logRequest()); got.Status != completed {
				t.Errorf("record %+v, want COMPLETED", got)
			}
		}},
		{Name: "finalize refuses invalid arguments by name", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			r := logAcquire(t, l, logRequest())
			finalize := func(id semantic.RecordID, f semantic.Finalization) error { return l.Finalize(t.Context(), id, f) }
			for _, id := range []semantic.RecordID{"", "nonsense", r.ID + ".x", "." + r.ID, r.ID + "\n", semantic.RecordID(strings.Repeat("1", 600))} {
				err := finalize(id, semantic.Finalization{Status: completed})
				if id == r.ID+".x" || id == "."+r.ID {
					// Well-formed in some implementation or not, it names no attempt.
					if !errors.Is(err, semantic.ErrInvalidArgument) && !errors.Is(err, semantic.ErrSuperseded) {
						t.Errorf("finalize %q: %v", id, err)
					}
					continue
				}
				wantArgument(t, err, "id")
			}
			for _, status := range []semantic.IdempotencyStatus{"", pending, "completed"} {
				wantArgument(t, finalize(r.ID, semantic.Finalization{Status: status}), "Status")
			}
			for _, m := range []map[string]string{{"k": "\xff"}, {"\xff": "v"}, {"k": strings.Repeat("v", semantic.MaxMetadataBytes)}} {
				wantArgument(t, finalize(r.ID, semantic.Finalization{Status: completed, Metadata: m}), "Metadata")
			}
			logFinalize(t, l, r.ID, completed, map[string]string{"k": strings.Repeat("v", semantic.MaxMetadataBytes-1)})
		}},
	}
}
