package semantic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"
)

// IdempotencyLog answers "did this side effect run before?" for an organisation, a
// domain and a key: webhooks, notifications, the handlers behind a queue.
//
// Exactly one of any number of concurrent callers acquires. The record outlives the
// process, so a duplicate that arrives days later is still one.
//
// Safe for concurrent use.
type IdempotencyLog interface {
	// TryAcquire records an attempt at the side effect, or says that there was one.
	// A record that has expired is forgotten, whether or not it is still stored: the
	// request begins anew with attempt 1. Failures are in the
	// result: Reason is [ReasonError] and Err the cause ([ErrInvalidArgument],
	// [ErrUnavailable], [ErrUnknown], [ErrClosed]); the caller decides whether to
	// fail open or closed.
	TryAcquire(ctx context.Context, req IdempotencyRequest) AcquireResult

	// Finalize records how the attempt named by id ended. It returns
	// [ErrSuperseded] when another attempt took its place, the record has expired, or
	// the attempt was finalized otherwise before, and nothing is written then;
	// finalizing twice with the same status is fine, and the first metadata stays.
	// Other errors: [ErrInvalidArgument], [ErrUnavailable],
	// [ErrUnknown], [ErrClosed]: the side effect happened, only the log does not know.
	Finalize(ctx context.Context, id RecordID, f Finalization) error
}

// RecordID names one attempt at one side effect.
type RecordID string

// MaxTTLDays is the longest retention of a record.
const MaxTTLDays = 3660

// MaxMetadataBytes is the most that the metadata of a record may have, keys and
// values together.
const MaxMetadataBytes = 64 << 10

// IdempotencyRequest asks for one side effect. OrganizationID, Domain and Key
// together are its identity.
type IdempotencyRequest struct {
	OrganizationID string // tenant
	Domain         string // kind of side effect
	Key            string // which one
	TTLDays        int    // how long it is remembered, 1 to [MaxTTLDays] days

	// Fingerprint of the request's content, optional: the same key with another
	// fingerprint is a conflict. A request or record without one conflicts with none.
	Fingerprint string
	// RetryFailed lets this request take the place of a FAILED attempt.
	RetryFailed bool
	// TakeOverPendingAfter lets this request take the place of a PENDING attempt
	// that is as old or older, because its process died; 0: never. Reconcile first:
	// the effect may have happened.
	TakeOverPendingAfter time.Duration
}

// Validate checks the request; it returns an [*ArgumentError] or nil.
func (r IdempotencyRequest) Validate() error {
	const op = "idempotency.tryAcquire"
	for _, f := range []struct{ name, value string }{
		{"OrganizationID", r.OrganizationID}, {"Domain", r.Domain}, {"Key", r.Key},
	} {
		if err := ValidateName(op, f.name, f.value); err != nil {
			return err
		}
	}
	if r.TTLDays < 1 || r.TTLDays > MaxTTLDays {
		return &ArgumentError{Operation: op, Argument: "TTLDays", Value: r.TTLDays, Allowed: "1 to 3660"}
	}
	if r.Fingerprint != "" {
		if err := ValidateName(op, "Fingerprint", r.Fingerprint); err != nil {
			return err
		}
	}
	if r.TakeOverPendingAfter != 0 {
		return ValidateDuration(op, "TakeOverPendingAfter", r.TakeOverPendingAfter)
	}
	return nil
}

// AcquireResult is the answer of a TryAcquire.
type AcquireResult struct {
	// Acquired tells whether the caller is to run the side effect.
	Acquired bool
	// Record is the caller's attempt when Acquired, and the existing one when
	// Reason is duplicate or conflict.
	Record IdempotencyRecord
	// Reason says why not.
	Reason AcquireReason
	// Err is the cause of [ReasonError].
	Err error
}

// AcquireReason says why a side effect was not acquired.
type AcquireReason string

const (
	// ReasonDuplicate: it was attempted before; the record says how that went.
	ReasonDuplicate AcquireReason = "duplicate"
	// ReasonConflict: the key was used before with another fingerprint.
	ReasonConflict AcquireReason = "conflict"
	// ReasonError: the log could not say.
	ReasonError AcquireReason = "error"
)

// IdempotencyRecord is one attempt as the log has it.
type IdempotencyRecord struct {
	ID             RecordID
	OrganizationID string
	Domain         string
	Key            string
	Status         IdempotencyStatus
	Metadata       map[string]string
	Fingerprint    string
	Attempt        int       // 1 for the first; greater after a retry or a takeover
	TakenOver      bool      // whether this attempt took the place of one that was PENDING
	AttemptedAt    time.Time // when this attempt acquired, by the server's clock
	ExpiresAt      time.Time // when it is forgotten, by the server's clock
}

// IdempotencyStatus is how an attempt stands.
type IdempotencyStatus string

const (
	// StatusPending: acquired and not finalized.
	StatusPending IdempotencyStatus = "PENDING"
	// StatusCompleted: the side effect ran.
	StatusCompleted IdempotencyStatus = "COMPLETED"
	// StatusFailed: the side effect did not run.
	StatusFailed IdempotencyStatus = "FAILED"
)

// Finalization says how an attempt ended.
type Finalization struct {
	Status   IdempotencyStatus // COMPLETED or FAILED
	Metadata map[string]string // kept beside it, for duplicates to read; up to [MaxMetadataBytes]
}

// Validate checks the finalization of id; it returns an [*ArgumentError] or nil.
func (f Finalization) Validate(id RecordID) error {
	const op = "idempotency.finalize"
	if err := ValidateName(op, "id", string(id)); err != nil {
		return err
	}
	if f.Status != StatusCompleted && f.Status != StatusFailed {
		return &ArgumentError{Operation: op, Argument: "Status", Value: string(f.Status), Allowed: "COMPLETED or FAILED"}
	}
	size := 0
	for k, v := range f.Metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return &ArgumentError{Operation: op, Argument: "Metadata", Value: strings.ToValidUTF8(k, "�"), Allowed: "keys and values of valid UTF-8"}
		}
		size += len(k) + len(v)
	}
	if size > MaxMetadataBytes {
		return &ArgumentError{Operation: op, Argument: "Metadata", Value: fmt.Sprintf("of %d bytes", size), Allowed: fmt.Sprintf("at most %d bytes, keys and values together", MaxMetadataBytes)}
	}
	return nil
}

// Clone returns a copy that shares nothing with r.
func (r IdempotencyRecord) Clone() IdempotencyRecord {
	r.Metadata = maps.Clone(r.Metadata)
	return r
}

// RunOnce runs effect if req acquires, and finalizes it: COMPLETED with the metadata
// that effect returned, FAILED when it returned an error or panicked. It returns the
// result of the acquire beside effect's error; when the log could not say, effect did not run
// and err is the cause. An error of the finalize is joined to it and
// matches [ErrUnavailable], [ErrUnknown] or [ErrSuperseded]: the effect is done then,
// only the log does not know. Metadata that the log cannot keep is left out and the
// error matches [ErrInvalidArgument]. The finalize ignores ctx's cancellation, within at most 5 seconds.
func RunOnce(ctx context.Context, log IdempotencyLog, req IdempotencyRequest, effect func(ctx context.Context, r IdempotencyRecord) (map[string]string, error)) (AcquireResult, error) {
	res := log.TryAcquire(ctx, req)
	if !res.Acquired {
		return res, res.Err
	}
	fin := Finalization{Status: StatusFailed}
	finalize := func() error {
		fctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return log.Finalize(fctx, res.Record.ID, fin)
	}
	returned := false
	defer func() {
		if !returned { // effect panicked or called runtime.Goexit
			_ = finalize()
		}
	}()
	metadata, err := effect(ctx, res.Record.Clone())
	returned = true
	if err == nil {
		fin = Finalization{Status: StatusCompleted, Metadata: metadata}
	}
	ferr := finalize()
	if errors.Is(ferr, ErrInvalidArgument) && fin.Metadata != nil {
		// The effect is done whatever its metadata look like: record that much.
		fin.Metadata = nil
		ferr = errors.Join(ferr, finalize())
	}
	if ferr != nil {
		return res, errors.Join(err, ferr)
	}
	return res, err
}
