package testkit

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// QueuedRecord is one message of a fan-out's queue.
type QueuedRecord struct {
	Domain string
	Record semantic.FanoutRecord
}

// FanoutBackend is the queue that n doubles of [semantic.Fanout] share. Like SQS it
// drops a record of the same domain, organisation, id and version for five minutes,
// also when the first was taken. Safe for concurrent use.
type FanoutBackend struct {
	injector
	clock semantic.Clock

	mu     sync.Mutex
	queued []QueuedRecord
	seen   map[[4]string]time.Time
	refuse func(domain string, r semantic.FanoutRecord) (code string)
}

// NewFanoutBackend returns an empty queue whose clock is clock; nil is the system's.
func NewFanoutBackend(clock semantic.Clock) *FanoutBackend {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &FanoutBackend{clock: clock, seen: map[[4]string]time.Time{}}
}

// Client returns one more replica's producer.
func (b *FanoutBackend) Client() *Fanout { return &Fanout{backend: b} }

// Refuse makes choose decide which records the queue refuses from now on, by a code
// that is not empty; nil refuses none.
func (b *FanoutBackend) Refuse(choose func(domain string, r semantic.FanoutRecord) (code string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = choose
}

// Queued returns what is queued and not taken, in the order of its sending.
func (b *FanoutBackend) Queued() []QueuedRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]QueuedRecord(nil), b.queued...)
}

// take empties the queue.
func (b *FanoutBackend) take() []QueuedRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.queued
	b.queued = nil
	return taken
}

// send queues one record, or says by its code why not.
func (b *FanoutBackend) send(domain string, r semantic.FanoutRecord) (code string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		if code := b.refuse(domain, r); code != "" {
			return code
		}
	}
	id := [4]string{domain, r.OrganizationID, r.RecordID, r.Version}
	now := b.clock.Now()
	if until, ok := b.seen[id]; !ok || !now.Before(until) {
		b.seen[id] = now.Add(sqsDedupWindow)
		r.Body = bytes.Clone(r.Body)
		b.queued = append(b.queued, QueuedRecord{domain, r})
	}
	return ""
}

// Fanout is an in-memory double of [semantic.Fanout]. It sends records one after the
// other, so that their order is kept within and beyond their group.
type Fanout struct{ backend *FanoutBackend }

var _ semantic.Fanout = (*Fanout)(nil)

// NewFanout returns a double with a queue of its own. Its Queued and Refuse are those of
// the backend.
func NewFanout(clock semantic.Clock) *Fanout { return NewFanoutBackend(clock).Client() }

// Queued returns what is queued, in the order of its sending.
func (f *Fanout) Queued() []QueuedRecord { return f.backend.Queued() }

// Refuse chooses the records that the queue refuses; see [FanoutBackend.Refuse].
func (f *Fanout) Refuse(choose func(domain string, r semantic.FanoutRecord) (code string)) {
	f.backend.Refuse(choose)
}

// Take removes and returns what is queued.
func (f *Fanout) Take(T) []QueuedRecord { return f.backend.take() }

// Enqueue queues every record; see [semantic.Fanout].
func (f *Fanout) Enqueue(ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
	const op = "fanout.enqueue"
	var report semantic.FanoutReport
	if err := semantic.ValidateName(op, "domain", domain); err != nil {
		return report, err
	}
	if records == nil {
		return report, &semantic.ArgumentError{Operation: op, Argument: "records", Value: "nil", Allowed: "a stream"}
	}
	fail := func(r semantic.FanoutRecord, code string, err error) {
		report.Failed++
		if len(report.Failures) < semantic.MaxReportedFailures {
			report.Failures = append(report.Failures, semantic.FanoutFailure{
				OrganizationID: r.OrganizationID, RecordID: r.RecordID, Code: code, Err: err,
			})
		}
	}
	for r, err := range records {
		if err != nil && !semantic.IsSkipped(err) {
			return report, err
		}
		report.Scanned++
		if err != nil {
			report.Skipped++
			continue
		}
		if err := checkRecord(r); err != nil {
			fail(r, "INVALID", err)
			continue
		}
		code, err := f.send(ctx, domain, r, &report.Calls)
		if err != nil {
			fail(r, code, err)
		} else {
			report.Enqueued++
		}
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
	}
	return report, nil
}

// send makes up to three requests for one record, as a producer that knows that its
// deduplication id makes that safe.
func (f *Fanout) send(ctx context.Context, domain string, r semantic.FanoutRecord, calls *int64) (code string, err error) {
	const op = "fanout.enqueue"
	for range 3 {
		if ctx.Err() != nil {
			return "CANCELLED", &semantic.OutcomeError{Operation: op, Key: r.RecordID, Outcome: semantic.OutcomeUnavailable, Cause: ctx.Err()}
		}
		*calls++
		if err := f.backend.before(ctx, op, r.RecordID); err != nil {
			if ctx.Err() != nil {
				return "UNKNOWN", err
			}
			return "UNAVAILABLE", err
		}
		code := f.backend.send(domain, r)
		if lost, _ := f.backend.replyLost(); lost {
			continue
		}
		if code != "" {
			return code, &semantic.OutcomeError{Operation: op, Key: r.RecordID, Outcome: semantic.OutcomeUnavailable, Cause: refusedError(code)}
		}
		return "", nil
	}
	return "UNKNOWN", unknown(op, r.RecordID)
}

// refusedError is the code with which a queue refused a record.
type refusedError string

func (e refusedError) Error() string { return "queue refused the record: " + string(e) }

// checkRecord checks what every queue refuses.
func checkRecord(r semantic.FanoutRecord) error {
	const op = "fanout.enqueue"
	for _, f := range []struct {
		name, value string
		optional    bool
	}{
		{"OrganizationID", r.OrganizationID, false}, {"RecordID", r.RecordID, false},
		{"Version", r.Version, true}, {"GroupID", r.GroupID, true},
	} {
		if f.value == "" && f.optional {
			continue
		}
		if err := semantic.ValidateName(op, f.name, f.value); err != nil {
			return err
		}
	}
	if !sqsText(string(r.Body)) {
		return &semantic.ArgumentError{Operation: op, Argument: "Body", Value: "not allowed", Allowed: "valid UTF-8 of the characters that SQS takes"}
	}
	return nil
}
