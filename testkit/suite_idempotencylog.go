package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// RunIdempotencyLog runs the conformance suite of [semantic.IdempotencyLog] on b.
func RunIdempotencyLog(t *testing.T, b Backend[semantic.IdempotencyLog]) {
	t.Helper()
	runCases(t, b, IdempotencyLogCases())
}

// IdempotencyLogCases returns the suite's cases.
func IdempotencyLogCases() []Case[semantic.IdempotencyLog] {
	return slices.Concat(logAcquireCases(), logReplaceCases(), logFinalizeCases(), logRaceCases(), logFaultCases())
}

type logBackend = Backend[semantic.IdempotencyLog]
type logCase = Case[semantic.IdempotencyLog]

const (
	day       = 24 * time.Hour
	completed = semantic.StatusCompleted
	failed    = semantic.StatusFailed
	pending   = semantic.StatusPending
)

// logRequest is the request of most cases, changed by edits.
func logRequest(edits ...func(*semantic.IdempotencyRequest)) semantic.IdempotencyRequest {
	req := semantic.IdempotencyRequest{OrganizationID: "org-1", Domain: "NEW_BOOKING", Key: "booking-1", TTLDays: 2}
	for _, edit := range edits {
		edit(&req)
	}
	return req
}

func retryFailed(r *semantic.IdempotencyRequest) { r.RetryFailed = true }

func takeOverAfter(d time.Duration) func(*semantic.IdempotencyRequest) {
	return func(r *semantic.IdempotencyRequest) { r.TakeOverPendingAfter = d }
}

func fingerprint(f string) func(*semantic.IdempotencyRequest) {
	return func(r *semantic.IdempotencyRequest) { r.Fingerprint = f }
}

// logAcquire acquires or ends the case.
func logAcquire(t T, l semantic.IdempotencyLog, req semantic.IdempotencyRequest) semantic.IdempotencyRecord {
	t.Helper()
	res := l.TryAcquire(t.Context(), req)
	if !res.Acquired || res.Reason != "" || res.Err != nil {
		t.Fatalf("acquire of %q: %+v, want it acquired", req.Key, res)
	}
	return res.Record
}

// logRefuse wants the request refused for reason, without an error, and returns the
// existing record.
func logRefuse(t T, l semantic.IdempotencyLog, req semantic.IdempotencyRequest, reason semantic.AcquireReason) semantic.IdempotencyRecord {
	t.Helper()
	res := l.TryAcquire(t.Context(), req)
	if res.Acquired || res.Reason != reason || res.Err != nil {
		t.Fatalf("acquire of %q: %+v, want reason %s and no error", req.Key, res, reason)
	}
	return res.Record
}

func logDuplicate(t T, l semantic.IdempotencyLog, req semantic.IdempotencyRequest) semantic.IdempotencyRecord {
	t.Helper()
	return logRefuse(t, l, req, semantic.ReasonDuplicate)
}

func logFinalize(t T, l semantic.IdempotencyLog, id semantic.RecordID, status semantic.IdempotencyStatus, metadata map[string]string) {
	t.Helper()
	if err := l.Finalize(t.Context(), id, semantic.Finalization{Status: status, Metadata: metadata}); err != nil {
		t.Fatalf("finalize %s: %v", status, err)
	}
}

func logSuperseded(t T, l semantic.IdempotencyLog, id semantic.RecordID, status semantic.IdempotencyStatus) {
	t.Helper()
	err := l.Finalize(t.Context(), id, semantic.Finalization{Status: status, Metadata: map[string]string{"by": "zombie"}})
	if !errors.Is(err, semantic.ErrSuperseded) {
		t.Errorf("finalize %s: %v, want ErrSuperseded", status, err)
	}
}

// sameRecord compares two views of one attempt.
func sameRecord(t T, what string, got, want semantic.IdempotencyRecord) {
	t.Helper()
	if !maps.Equal(got.Metadata, want.Metadata) || !got.AttemptedAt.Equal(want.AttemptedAt) || !got.ExpiresAt.Equal(want.ExpiresAt) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
		return
	}
	got.Metadata, got.AttemptedAt, got.ExpiresAt = want.Metadata, want.AttemptedAt, want.ExpiresAt
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func logAcquireCases() []logCase {
	return []logCase{
		{Name: "a new side effect is acquired as a PENDING first attempt", Run: func(t T, b logBackend) {
			r := logAcquire(t, b.New(t, 1)[0], logRequest(fingerprint("f1")))
			if r.ID == "" || r.Status != pending || r.Attempt != 1 || r.TakenOver || len(r.Metadata) != 0 {
				t.Errorf("record %+v, want an id, PENDING, attempt 1, not taken over, no metadata", r)
			}
			if r.OrganizationID != "org-1" || r.Domain != "NEW_BOOKING" || r.Key != "booking-1" || r.Fingerprint != "f1" {
				t.Errorf("record %+v does not repeat the request", r)
			}
			if got := r.ExpiresAt.Sub(r.AttemptedAt); got != 2*day {
				t.Errorf("it is remembered for %v, want the 2 days asked for", got)
			}
		}},
		{Name: "a duplicate carries the existing record with status and metadata", Run: func(t T, b logBackend) {
			ls := b.New(t, 2)
			first := logAcquire(t, ls[0], logRequest())
			sameRecord(t, "duplicate while PENDING", logDuplicate(t, ls[1], logRequest()), first)
			first.Status, first.Metadata = completed, map[string]string{"provider_id": "msg-7"}
			logFinalize(t, ls[0], first.ID, completed, first.Metadata)
			sameRecord(t, "duplicate once COMPLETED", logDuplicate(t, ls[1], logRequest()), first)
		}},
		{Name: "metadata come back as they were, dots, dollars and all", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			want := map[string]string{"a.b": "1", "$set": "$$NOW", "": "empty key", "Ключ": "значение 😀", "nul\x00": "\x00", "_id": "x", "blank": ""}
			logFinalize(t, l, logAcquire(t, l, logRequest()).ID, failed, want)
			if got := logDuplicate(t, l, logRequest()).Metadata; !maps.Equal(got, want) {
				t.Errorf("metadata %q, want %q", got, want)
			}
		}},
		{Name: "a returned record shares nothing with the log", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			given := map[string]string{"k": "v"}
			logFinalize(t, l, logAcquire(t, l, logRequest()).ID, completed, given)
			given["k"] = "changed by the caller"
			logDuplicate(t, l, logRequest()).Metadata["k"] = "changed by a reader"
			if got := logDuplicate(t, l, logRequest()).Metadata["k"]; got != "v" {
				t.Errorf("metadata of the log became %q", got)
			}
		}},
		// MassTransit#3543: a log unique on the message id alone refuses its second consumer.
		{Name: "organisation, domain and key together are the identity", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			ids := map[semantic.RecordID]bool{}
			for _, id := range [][3]string{{"o", "d", "k"}, {"o2", "d", "k"}, {"o", "d2", "k"}, {"o", "d", "k2"}, {"od", "k", "x"}, {"o", "dk", "x"}, {"O", "d", "k"}} {
				ids[logAcquire(t, l, logRequest(func(r *semantic.IdempotencyRequest) {
					r.OrganizationID, r.Domain, r.Key = id[0], id[1], id[2]
				})).ID] = true
			}
			if len(ids) != 7 {
				t.Errorf("%d ids for 7 identities", len(ids))
			}
		}},
		{Name: "names are data, whatever characters they have", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			for i, name := range []string{"$organization_id", "$$NOW", "$$ROOT", "a.b", "{}", "{$ne: null}", `"'\`, "*", "ключ 😀", strings.Repeat("k", semantic.MaxKeyBytes)} {
				req := logRequest(fingerprint(name), func(r *semantic.IdempotencyRequest) {
					r.OrganizationID, r.Domain, r.Key = name, name, name
				})
				r := logAcquire(t, l, req)
				if r.OrganizationID != name || r.Domain != name || r.Key != name || r.Fingerprint != name {
					t.Errorf("%d: record %+v, want every name to be %q", i, r, name)
				}
				sameRecord(t, name, logDuplicate(t, l, req), r)
			}
		}},
		{Name: "by default any live record blocks", Run: func(t T, b logBackend) {
			for _, status := range []semantic.IdempotencyStatus{pending, failed, completed} {
				l := b.New(t, 1)[0]
				r := logAcquire(t, l, logRequest())
				if status != pending {
					logFinalize(t, l, r.ID, status, nil)
				}
				b.Advance(2*day - time.Hour)
				if got := logDuplicate(t, l, logRequest()); got.Status != status || got.Attempt != 1 {
					t.Errorf("duplicate %+v, want attempt 1 %s", got, status)
				}
			}
		}},
		{Name: "invalid arguments are refused by name", Run: func(t T, b logBackend) {
			l := b.New(t, 1)[0]
			set := func(edit func(r *semantic.IdempotencyRequest)) semantic.IdempotencyRequest { return logRequest(edit) }
			for argument, reqs := range map[string][]semantic.IdempotencyRequest{
				"OrganizationID": {set(func(r *semantic.IdempotencyRequest) { r.OrganizationID = "" })},
				"Domain":         {set(func(r *semantic.IdempotencyRequest) { r.Domain = "a\nb" })},
				"Key": {
					set(func(r *semantic.IdempotencyRequest) { r.Key = strings.Repeat("k", semantic.MaxKeyBytes+1) }),
					set(func(r *semantic.IdempotencyRequest) { r.Key = "\xff" }),
				},
				"TTLDays": {
					set(func(r *semantic.IdempotencyRequest) { r.TTLDays = 0 }),
					set(func(r *semantic.IdempotencyRequest) { r.TTLDays = semantic.MaxTTLDays + 1 }),
				},
				"Fingerprint": {set(fingerprint("\x00"))},
				"TakeOverPendingAfter": {
					set(takeOverAfter(-time.Second)), set(takeOverAfter(time.Microsecond)), set(takeOverAfter(semantic.MaxTTL + 1)),
				},
			} {
				for _, req := range reqs {
					res := l.TryAcquire(t.Context(), req)
					wantArgument(t, res.Err, argument)
					if res.Acquired || res.Reason != semantic.ReasonError {
						t.Errorf("%s: %+v, want reason error", argument, res)
					}
				}
			}
			logAcquire(t, l, logRequest()) // none of them left a record
		}},
		{Name: "after close every method says ErrClosed", Run: func(t T, b logBackend) {
			ls := b.New(t, 2)
			r := logAcquire(t, ls[0], logRequest())
			switch c := ls[0].(type) {
			case interface{ Close() }:
				c.Close()
			case interface{ Close(context.Context) error }:
				if err := c.Close(t.Context()); err != nil {
					t.Errorf("close: %v", err)
				}
			default:
				t.Logf("not run: this client cannot be closed by itself")
				return
			}
			if res := ls[0].TryAcquire(t.Context(), logRequest()); res.Acquired || res.Reason != semantic.ReasonError || !errors.Is(res.Err, semantic.ErrClosed) {
				t.Errorf("acquire after close: %+v, want reason error and ErrClosed", res)
			}
			if err := ls[0].Finalize(t.Context(), r.ID, semantic.Finalization{Status: completed}); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("finalize after close: %v, want ErrClosed", err)
			}
			logFinalize(t, ls[1], r.ID, completed, nil) // another replica goes on
		}},
	}
}
