package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// FanoutQueue is one replica's producer together with a reader of its queue.
type FanoutQueue interface {
	semantic.Fanout
	// Take removes and returns what is queued: each message once, and those of a group
	// in the order in which a consumer gets them.
	Take(t T) []QueuedRecord
}

var _ FanoutQueue = (*Fanout)(nil)

// RunFanout checks that b keeps the promises of [semantic.Fanout].
func RunFanout(t *testing.T, b Backend[FanoutQueue]) {
	t.Helper()
	runCases(t, b, FanoutCases())
}

func fanoutRecord(id string) semantic.FanoutRecord {
	return semantic.FanoutRecord{OrganizationID: "org", RecordID: id, Version: "v1", Body: []byte("body of " + id)}
}

func recordStream(records ...semantic.FanoutRecord) semantic.Records {
	return func(yield func(semantic.FanoutRecord, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// numbered streams n records of one group, or of a group each.
func numbered(n int, group string) semantic.Records {
	return func(yield func(semantic.FanoutRecord, error) bool) {
		for i := range n {
			r := fanoutRecord(fmt.Sprintf("r%04d", i))
			r.GroupID = group
			if !yield(r, nil) {
				return
			}
		}
	}
}

// enqueue checks that the report adds up, whatever else happened.
func enqueue(t T, f semantic.Fanout, ctx context.Context, records semantic.Records) (semantic.FanoutReport, error) {
	t.Helper()
	report, err := f.Enqueue(ctx, "domain", records)
	if report.Scanned != report.Enqueued+report.Failed+report.Skipped {
		t.Errorf("the report does not add up: scanned %d, enqueued %d, failed %d, skipped %d", report.Scanned, report.Enqueued, report.Failed, report.Skipped)
	}
	if want := min(report.Failed, semantic.MaxReportedFailures); int64(len(report.Failures)) != want {
		t.Errorf("%d records failed and %d failures are reported, want %d", report.Failed, len(report.Failures), want)
	}
	return report, err
}

func wantReport(t T, got semantic.FanoutReport, err error, scanned, enqueued, failed, skipped int64) {
	t.Helper()
	if err != nil {
		t.Errorf("unexpected error: %v", err)
	}
	if got.Scanned != scanned || got.Enqueued != enqueued || got.Failed != failed || got.Skipped != skipped {
		t.Errorf("scanned %d, enqueued %d, failed %d, skipped %d; want %d, %d, %d, %d (%v)",
			got.Scanned, got.Enqueued, got.Failed, got.Skipped, scanned, enqueued, failed, skipped, got.Failures)
	}
}

func idsOf(queued []QueuedRecord) []string {
	ids := make([]string, len(queued))
	for i, q := range queued {
		ids[i] = q.Record.RecordID
	}
	return ids
}

// wantTaken takes what is queued and compares the ids in any order.
func wantTaken(t T, f FanoutQueue, ids ...string) {
	t.Helper()
	got := idsOf(f.Take(t))
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("queued are %v, want %v", got, ids)
	}
}

// FanoutCases are the promises of [semantic.Fanout].
func FanoutCases() []Case[FanoutQueue] {
	return append(fanoutCases(), fanoutFaultCases()...)
}

func fanoutCases() []Case[FanoutQueue] {
	return []Case[FanoutQueue]{
		{Name: "every record is queued as it is, and the report adds up", Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			records := []semantic.FanoutRecord{
				{OrganizationID: "org", RecordID: "plain", Version: "1", GroupID: "g", Body: []byte(`{"a":1}`)},
				{OrganizationID: "örg", RecordID: "räcord 😀", Version: "", Body: []byte("tab\tline\nü")},
				{OrganizationID: "org", RecordID: "empty", Version: "1", Body: nil},
				{OrganizationID: "org", RecordID: strings.Repeat("x", semantic.MaxKeyBytes), Version: strings.Repeat("v", semantic.MaxKeyBytes), GroupID: strings.Repeat("g", semantic.MaxKeyBytes), Body: []byte("-")},
			}
			report, err := enqueue(t, f, t.Context(), recordStream(records...))
			wantReport(t, report, err, 4, 4, 0, 0)
			if report.Calls < 1 {
				t.Errorf("%d calls are reported", report.Calls)
			}
			got := f.Take(t)
			for _, want := range records {
				i := slices.IndexFunc(got, func(q QueuedRecord) bool { return q.Record.RecordID == want.RecordID })
				if i < 0 {
					t.Errorf("%q is not queued", want.RecordID)
					continue
				}
				r := got[i].Record
				if got[i].Domain != "domain" || r.OrganizationID != want.OrganizationID || r.Version != want.Version || r.GroupID != want.GroupID || string(r.Body) != string(want.Body) {
					t.Errorf("queued as %+v, want %+v", got[i], want)
				}
			}
		}},
		{Name: "a record that cannot be read is skipped and the scan goes on", Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			report, err := enqueue(t, f, t.Context(), func(yield func(semantic.FanoutRecord, error) bool) {
				_ = yield(fanoutRecord("a"), nil) &&
					yield(semantic.FanoutRecord{}, fmt.Errorf("row 2: %w", semantic.SkipRecord(errors.New("malformed")))) &&
					yield(fanoutRecord("b"), nil)
			})
			wantReport(t, report, err, 3, 2, 0, 1)
			wantTaken(t, f, "a", "b")
		}},
		{Name: "any other error ends the scan and is returned beside the report", Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			broken := errors.New("cursor is gone")
			report, err := enqueue(t, f, t.Context(), func(yield func(semantic.FanoutRecord, error) bool) {
				if yield(fanoutRecord("a"), nil) && yield(semantic.FanoutRecord{}, broken) {
					t.Errorf("the scan was asked for more after its error")
				}
			})
			if !errors.Is(err, broken) {
				t.Errorf("error is %v, want the scan's", err)
			}
			wantReport(t, report, nil, 1, 1, 0, 0)
			wantTaken(t, f, "a")
		}},
		{Name: "the same record and version is queued once, a new version again", Run: func(t T, b Backend[FanoutQueue]) {
			fs := b.New(t, 2)
			second := fanoutRecord("a")
			second.Version = "v2"
			report, err := enqueue(t, fs[0], t.Context(), recordStream(fanoutRecord("a"), fanoutRecord("a"), second))
			wantReport(t, report, err, 3, 3, 0, 0)
			wantTaken(t, fs[0], "a", "a")
			report, err = enqueue(t, fs[1], t.Context(), recordStream(fanoutRecord("a"), second))
			wantReport(t, report, err, 2, 2, 0, 0)
			wantTaken(t, fs[1])
		}},
		{Name: "identities that only look alike are different records", Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			report, err := enqueue(t, f, t.Context(), recordStream(
				semantic.FanoutRecord{OrganizationID: "a", RecordID: "bc", Version: "d"},
				semantic.FanoutRecord{OrganizationID: "ab", RecordID: "c", Version: "d"},
				semantic.FanoutRecord{OrganizationID: "a", RecordID: "b", Version: "cd"},
				semantic.FanoutRecord{OrganizationID: "a", RecordID: "b", Version: ""},
			))
			wantReport(t, report, err, 4, 4, 0, 0)
			other, err := f.Enqueue(t.Context(), "domain2", recordStream(semantic.FanoutRecord{OrganizationID: "a", RecordID: "bc", Version: "d"}))
			wantReport(t, other, err, 1, 1, 0, 0)
			wantTaken(t, f, "bc", "c", "b", "b", "bc")
		}},
		{Name: "records of one group are queued in their order", Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			const groups, each = 3, 15
			report, err := enqueue(t, f, t.Context(), func(yield func(semantic.FanoutRecord, error) bool) {
				for i := range groups * each {
					r := fanoutRecord(fmt.Sprintf("r%02d", i/groups))
					r.GroupID = fmt.Sprintf("g%d", i%groups)
					r.Version = r.GroupID
					if !yield(r, nil) {
						return
					}
				}
			})
			wantReport(t, report, err, groups*each, groups*each, 0, 0)
			byGroup := map[string][]string{}
			for _, q := range f.Take(t) {
				byGroup[q.Record.GroupID] = append(byGroup[q.Record.GroupID], q.Record.RecordID)
			}
			for g, ids := range byGroup {
				if len(ids) != each || !slices.IsSorted(ids) {
					t.Errorf("group %s is queued as %v", g, ids)
				}
			}
		}},
		{Name: "an invalid record fails alone", Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			bad := []semantic.FanoutRecord{
				{RecordID: "no organisation"},
				{OrganizationID: "org"},
				{OrganizationID: "org", RecordID: "bad\nname"},
				{OrganizationID: "org", RecordID: "body-utf8", Body: []byte{'a', 0xff}},
				{OrganizationID: "org", RecordID: "body-control", Body: []byte("a\x00b")},
				{OrganizationID: "org", RecordID: "version", Version: strings.Repeat("v", semantic.MaxKeyBytes+1)},
			}
			all := append(append([]semantic.FanoutRecord{fanoutRecord("a")}, bad...), fanoutRecord("b"))
			report, err := enqueue(t, f, t.Context(), recordStream(all...))
			wantReport(t, report, err, 8, 2, 6, 0)
			for _, failure := range report.Failures {
				if failure.Code != "INVALID" || !errors.Is(failure.Err, semantic.ErrInvalidArgument) {
					t.Errorf("%q failed with %s, %v; want INVALID", failure.RecordID, failure.Code, failure.Err)
				}
			}
			wantTaken(t, f, "a", "b")
		}},
		{Name: "a bad domain or no stream is refused before anything is read", Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			for _, domain := range []string{"", "a\x00b", strings.Repeat("x", semantic.MaxKeyBytes+1)} {
				_, err := f.Enqueue(t.Context(), domain, func(func(semantic.FanoutRecord, error) bool) {
					t.Errorf("the scan was read for domain %q", domain)
				})
				wantArgument(t, err, "domain")
			}
			_, err := f.Enqueue(t.Context(), "domain", nil)
			wantArgument(t, err, "records")
		}},
		{Name: "replicas that enqueue the same scan at once queue each record once", Run: func(t T, b Backend[FanoutQueue]) {
			const n = 25
			fs := b.New(t, 3)
			var done sync.WaitGroup
			for _, f := range fs {
				done.Go(func() {
					report, err := enqueue(t, f, t.Context(), numbered(n, ""))
					wantReport(t, report, err, n, n, 0, 0)
				})
			}
			done.Wait()
			if got := idsOf(fs[0].Take(t)); len(got) != n {
				t.Errorf("%d messages are queued, want %d", len(got), n)
			}
		}},
		{Name: "a context that has ended queues nothing more", Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			report, err := enqueue(t, f, ctx, numbered(50, ""))
			if !errors.Is(err, context.Canceled) || report.Enqueued != 0 {
				t.Errorf("enqueued %d, error %v; want none and the context's", report.Enqueued, err)
			}
			wantTaken(t, f)
		}},
	}
}

func fanoutFaultCases() []Case[FanoutQueue] {
	return []Case[FanoutQueue]{
		{Name: "an unreachable queue fails every record as unavailable, and reports the first hundred", Needs: NeedFaults, Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			const n = semantic.MaxReportedFailures + 20
			heal := b.Fault(t, FaultDown)
			report, err := enqueue(t, f, t.Context(), numbered(n, ""))
			heal()
			wantReport(t, report, err, n, 0, n, 0)
			for _, failure := range report.Failures {
				if failure.Code != "UNAVAILABLE" || !errors.Is(failure.Err, semantic.ErrUnavailable) || failure.OrganizationID != "org" {
					t.Fatalf("failure is %+v, want UNAVAILABLE", failure)
				}
			}
			wantTaken(t, f)
			report, err = enqueue(t, f, t.Context(), numbered(2, ""))
			wantReport(t, report, err, 2, 2, 0, 0)
			wantTaken(t, f, "r0000", "r0001")
		}},
		{Name: "a lost reply neither loses a record nor queues it twice", Needs: NeedFaults, Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			heal := b.Fault(t, FaultLoseReply)
			defer heal()
			report, err := enqueue(t, f, t.Context(), numbered(5, ""))
			wantReport(t, report, err, 5, 5, 0, 0)
			wantTaken(t, f, "r0000", "r0001", "r0002", "r0003", "r0004")
		}},
		{Name: "a lost reply keeps the order of a group", Needs: NeedFaults, Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			heal := b.Fault(t, FaultLoseReply)
			defer heal()
			report, err := enqueue(t, f, t.Context(), numbered(6, "g"))
			wantReport(t, report, err, 6, 6, 0, 0)
			if got := idsOf(f.Take(t)); len(got) != 6 || !slices.IsSorted(got) {
				t.Errorf("group is queued as %v", got)
			}
		}},
		{Name: "a record none of whose replies arrived is unknown, and safe to enqueue again", Needs: NeedFaults, Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			heal := b.Fault(t, FaultLoseReplies)
			report, err := enqueue(t, f, t.Context(), numbered(3, ""))
			heal()
			wantReport(t, report, err, 3, 0, 3, 0)
			for _, failure := range report.Failures {
				if failure.Code != "UNKNOWN" || !errors.Is(failure.Err, semantic.ErrUnknown) {
					t.Errorf("failure is %+v, want UNKNOWN", failure)
				}
			}
			report, err = enqueue(t, f, t.Context(), numbered(3, ""))
			wantReport(t, report, err, 3, 3, 0, 0)
			wantTaken(t, f, "r0000", "r0001", "r0002")
		}},
		{Name: "cancelling ends a silent enqueue promptly, with every record accounted for", Needs: NeedFaults, Run: func(t T, b Backend[FanoutQueue]) {
			f := b.New(t, 1)[0]
			heal := b.Fault(t, FaultHang)
			defer heal()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(50*time.Millisecond, cancel)
			begun := time.Now()
			report, err := enqueue(t, f, ctx, numbered(500, ""))
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("took %v after the cancel", took)
			}
			if !errors.Is(err, context.Canceled) || report.Failed == 0 || report.Enqueued != 0 {
				t.Errorf("enqueued %d, failed %d, error %v; want the context's", report.Enqueued, report.Failed, err)
			}
			for _, failure := range report.Failures {
				if failure.Code != "CANCELLED" && failure.Code != "UNKNOWN" {
					t.Errorf("%q failed with %s", failure.RecordID, failure.Code)
				}
			}
		}},
	}
}
