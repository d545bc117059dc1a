package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// IdempotencyLogBackend is the memory that n doubles of [semantic.IdempotencyLog]
// share, as replicas of a service share a database. Expired records stay in it until
// they are replaced, as in a database whose garbage collection is late. Safe for
// concurrent use.
type IdempotencyLogBackend struct {
	injector
	clock semantic.Clock
	rule  logRule

	mu         sync.Mutex
	records    map[logIdentity]*logRecord
	byRow      map[int]*logRecord
	rows       int
	requests   int
	beforeNext func()
}

type logIdentity struct{ organization, domain, key string }

// logRecord is one stored record. It is replaced in place, so that its row stays.
type logRecord struct {
	row       int
	attemptID string
	semantic.IdempotencyRecord
}

// logRule decides whether a request may take the place of a stored record, and
// whether it conflicts with it. It is a field for the seeded bugs of the tests.
type logRule struct {
	replace  func(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool
	conflict func(r *logRecord, req semantic.IdempotencyRequest) bool
	// current tells whether the attempt may still be finalized.
	current func(r *logRecord, attemptID string, now time.Time) bool
	// own tells whether the stored attempt is the one of this very call.
	own func(r *logRecord, attemptID string) bool
}

// NewIdempotencyLogBackend returns an empty backend whose clock is clock; nil means
// the system's.
func NewIdempotencyLogBackend(clock semantic.Clock) *IdempotencyLogBackend {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &IdempotencyLogBackend{
		clock: clock, records: map[logIdentity]*logRecord{}, byRow: map[int]*logRecord{},
		rule: logRule{
			replace: replaceable,
			conflict: func(r *logRecord, req semantic.IdempotencyRequest) bool {
				return r.Fingerprint != "" && req.Fingerprint != "" && r.Fingerprint != req.Fingerprint
			},
			current: func(r *logRecord, attemptID string, now time.Time) bool {
				return r.attemptID == attemptID && now.Before(r.ExpiresAt)
			},
			own: func(r *logRecord, attemptID string) bool { return r.attemptID == attemptID },
		},
	}
}

// replaceable is the contract's rule for a live record without conflict.
func replaceable(r *logRecord, req semantic.IdempotencyRequest, now time.Time) bool {
	switch {
	case !now.Before(r.ExpiresAt):
		return true
	case r.Status == semantic.StatusFailed:
		return req.RetryFailed
	case r.Status == semantic.StatusPending:
		return req.TakeOverPendingAfter > 0 && !now.Before(r.AttemptedAt.Add(req.TakeOverPendingAfter))
	}
	return false
}

// Client returns one more replica's view of the backend.
func (b *IdempotencyLogBackend) Client() *IdempotencyLog { return &IdempotencyLog{backend: b} }

// BeforeNext runs f once, before the next request is applied: a rival's step that
// comes just ahead.
func (b *IdempotencyLogBackend) BeforeNext(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beforeNext = f
}

// Requests returns how many requests have reached the backend.
func (b *IdempotencyLogBackend) Requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// Record returns the stored record of an identity, expired or not, and whether there
// is one. It changes nothing.
func (b *IdempotencyLogBackend) Record(organizationID, domain, key string) (semantic.IdempotencyRecord, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[logIdentity{organizationID, domain, key}]
	if !ok {
		return semantic.IdempotencyRecord{}, false
	}
	return r.Clone(), true
}

// request applies one request and tells whether its reply is lost.
func (b *IdempotencyLogBackend) request(ctx context.Context, op, key string, apply func(now time.Time)) (lost bool, err error) {
	b.mu.Lock()
	rival := b.beforeNext
	b.beforeNext = nil
	b.mu.Unlock()
	if rival != nil {
		rival()
	}
	if err := b.before(ctx, op, key); err != nil {
		return false, err
	}
	b.mu.Lock()
	b.requests++
	apply(b.clock.Now().UTC().Truncate(time.Millisecond))
	b.mu.Unlock()
	lost, _ = b.replyLost()
	return lost, nil
}

// IdempotencyLog is the in-memory double of [semantic.IdempotencyLog].
type IdempotencyLog struct {
	backend *IdempotencyLogBackend
	closed  atomic.Bool
}

var _ semantic.IdempotencyLog = (*IdempotencyLog)(nil)

// NewIdempotencyLog returns a double with a backend of its own; a nil clock means
// the system's.
func NewIdempotencyLog(clock semantic.Clock) *IdempotencyLog {
	return NewIdempotencyLogBackend(clock).Client()
}

// logTries is how often a double sends a request whose reply is lost.
const logTries = 3

// TryAcquire is the contract's.
func (l *IdempotencyLog) TryAcquire(ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
	const op = "idempotency.tryAcquire"
	if err := req.Validate(); err != nil {
		return semantic.AcquireResult{Reason: semantic.ReasonError, Err: err}
	}
	attemptID := rand.Text()
	var res semantic.AcquireResult
	err := l.call(ctx, op, req.Key, func(now time.Time) { res = l.backend.acquire(req, attemptID, now) })
	if err != nil {
		return semantic.AcquireResult{Reason: semantic.ReasonError, Err: err}
	}
	return res
}

// Finalize is the contract's.
func (l *IdempotencyLog) Finalize(ctx context.Context, id semantic.RecordID, f semantic.Finalization) error {
	const op = "idempotency.finalize"
	if err := f.Validate(id); err != nil {
		return err
	}
	row, attemptID, found := strings.Cut(string(id), ".")
	n, err := strconv.Atoi(row)
	if !found || err != nil || attemptID == "" {
		return &semantic.ArgumentError{Operation: op, Argument: "id", Value: string(id), Allowed: "the ID of an acquired record"}
	}
	var superseded bool
	err = l.call(ctx, op, string(id), func(now time.Time) { superseded = !l.backend.finalize(n, attemptID, f, now) })
	if err == nil && superseded {
		err = fmt.Errorf("%s %q: %w", op, id, semantic.ErrSuperseded)
	}
	return err
}

// Close makes every later call return [semantic.ErrClosed].
func (l *IdempotencyLog) Close() { l.closed.Store(true) }

// call sends a request, and again while its reply is lost: apply recognises its own
// earlier try.
func (l *IdempotencyLog) call(ctx context.Context, op, key string, apply func(now time.Time)) error {
	if l.closed.Load() {
		return fmt.Errorf("%s %q: %w", op, key, semantic.ErrClosed)
	}
	for try := range logTries {
		lost, err := l.backend.request(ctx, op, key, apply)
		var failed *semantic.OutcomeError
		if try > 0 && errors.As(err, &failed) {
			failed.Outcome = semantic.OutcomeUnknown // the try before may have been applied
		}
		if err != nil || !lost {
			return err
		}
	}
	return unknown(op, key)
}

// acquire is one atomic step of the database.
func (b *IdempotencyLogBackend) acquire(req semantic.IdempotencyRequest, attemptID string, now time.Time) semantic.AcquireResult {
	id := logIdentity{req.OrganizationID, req.Domain, req.Key}
	r, exists := b.records[id]
	live := exists && now.Before(r.ExpiresAt)
	switch {
	case exists && b.rule.own(r, attemptID):
		return semantic.AcquireResult{Acquired: true, Record: r.Clone()}
	case live && b.rule.conflict(r, req):
		return semantic.AcquireResult{Reason: semantic.ReasonConflict, Record: r.Clone()}
	case exists && !b.rule.replace(r, req, now):
		return semantic.AcquireResult{Reason: semantic.ReasonDuplicate, Record: r.Clone()}
	}
	attempt, takenOver, fingerprint := 1, false, req.Fingerprint
	if live {
		attempt, takenOver = r.Attempt+1, r.Status == semantic.StatusPending
		if fingerprint == "" {
			fingerprint = r.Fingerprint
		}
	}
	if !exists {
		b.rows++
		r = &logRecord{row: b.rows}
		b.records[id], b.byRow[r.row] = r, r
	}
	r.attemptID = attemptID
	r.IdempotencyRecord = semantic.IdempotencyRecord{
		ID:             semantic.RecordID(fmt.Sprintf("%d.%s", r.row, attemptID)),
		OrganizationID: req.OrganizationID, Domain: req.Domain, Key: req.Key,
		Status: semantic.StatusPending, Fingerprint: fingerprint,
		Attempt: attempt, TakenOver: takenOver,
		AttemptedAt: now, ExpiresAt: now.AddDate(0, 0, req.TTLDays),
	}
	return semantic.AcquireResult{Acquired: true, Record: r.Clone()}
}

// finalize is one atomic step of the database; it returns false if the attempt was
// superseded.
func (b *IdempotencyLogBackend) finalize(row int, attemptID string, f semantic.Finalization, now time.Time) bool {
	r := b.byRow[row]
	switch {
	case r == nil || !b.rule.current(r, attemptID, now):
		return false
	case r.Status == semantic.StatusPending:
		r.Status, r.Metadata = f.Status, cloneMetadata(f.Metadata)
		return true
	default:
		return r.Status == f.Status
	}
}

// cloneMetadata copies m; no metadata is nil, as a database gives it back.
func cloneMetadata(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	c := make(map[string]string, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
