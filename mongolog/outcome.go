package mongolog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/wrkbelt/coord/semantic"
)

// callName names a call in errors and signals.
type callName struct{ operation, key, domain string }

// mark follows the commands of one try.
type mark struct {
	started atomic.Bool // a command was handed to a connection
	open    atomic.Bool // so was a write, and its outcome is not known
	writing atomic.Bool // the command in hand is a write
}

type markKey struct{}

// markStarted is told by the driver of every command before its first byte is sent;
// what it was never told of was provably not sent.
func markStarted(ctx context.Context, _ *event.CommandStartedEvent) {
	if m, ok := ctx.Value(markKey{}).(*mark); ok {
		m.started.Store(true)
		if m.writing.Load() {
			m.open.Store(true)
		}
	}
}

// write runs one write command. When it returns with a reply that says what was
// written, the write is no longer open.
func write(ctx context.Context, command func() error) error {
	m, _ := ctx.Value(markKey{}).(*mark)
	if m == nil {
		return command()
	}
	m.writing.Store(true)
	err := command()
	m.writing.Store(false)
	if err == nil || errors.Is(err, mongo.ErrNoDocuments) || duplicateKey(err) || refused(err) {
		m.open.Store(false)
	}
	return err
}

// retryPause is the first pause before a call is sent again; it doubles each time.
const retryPause = 5 * time.Millisecond

// maxTries bounds how often a call is sent.
const maxTries = 5

// call runs step until its outcome is known or ctx ends. step recognises what an
// earlier try of the same call wrote.
func (l *Log) call(ctx context.Context, name callName, step func(ctx context.Context, r records) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.config.Timeout)
		defer cancel()
	}
	unknown := false
	for try := 1; ; try++ {
		m, err := l.try(ctx, step)
		unknown = unknown || m.open.Load()
		var final finalError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final) && !unknown:
			err = fmt.Errorf("%s %q: %w", name.operation, name.key, final.error)
			if !errors.Is(err, semantic.ErrClosed) {
				l.signals.LogUnavailable(name.operation, name.domain, "REFUSED", err)
			}
			return err
		case ctx.Err() != nil, try == maxTries, final.error != nil, !m.started.Load() && !unknown, refused(err) && !movedPrimary(err) && !unknown:
			return l.failed(ctx, name, err, unknown)
		}
		pause := time.NewTimer(retryPause << (try - 1))
		select {
		case <-ctx.Done():
			pause.Stop()
		case <-pause.C:
		}
	}
}

// try runs step once.
func (l *Log) try(ctx context.Context, step func(ctx context.Context, r records) error) (*mark, error) {
	m := new(mark)
	if err := ctx.Err(); err != nil {
		return m, err
	}
	l.mu.RLock()
	records, closed := l.records, l.closed
	l.mu.RUnlock()
	switch {
	case closed:
		return m, finalError{semantic.ErrClosed}
	case records == nil:
		return m, errNotStarted
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, markKey{}, m), l.config.TryTimeout)
	defer cancel()
	err := step(ctx, records)
	if errors.Is(err, mongo.ErrClientDisconnected) {
		err = finalError{semantic.ErrClosed}
	}
	return m, err
}

var errNotStarted = errors.New("the log was not started")

// finalError is an answer that is an error: it is known, and trying again is no use.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// failed is the error of a call without an answer. The signal is left out when the
// caller itself gave up.
func (l *Log) failed(ctx context.Context, name callName, cause error, unknown bool) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(cause, ended) {
		cause = errors.Join(ended, cause)
	}
	err := &semantic.OutcomeError{Operation: name.operation, Key: name.key, Outcome: semantic.OutcomeUnavailable, Cause: cause}
	if unknown {
		err.Outcome = semantic.OutcomeUnknown
	}
	if unknown || !errors.Is(ctx.Err(), context.Canceled) {
		l.signals.LogUnavailable(name.operation, name.domain, string(err.Outcome), err)
	}
	return err
}

// refusals are the codes with which a server says that it did not execute a command.
var refusals = []int{
	10107, 13435, 10058, // not primary
	13, 18, 8000, // not allowed to
	2, 9, 14, 20, 40, 48, 52, 59, 61, 66, 72, 73, 115, 238, // cannot be executed as it is
	121, 10334, 14031, // document refused, too large, disk full
	371, // writes are blocked
	462, // overloaded
}

// refused tells whether err is the server's word that nothing was written.
func refused(err error) bool {
	var reply mongo.ServerError
	if !errors.As(err, &reply) || concernFailed(err) {
		return false
	}
	return slices.ContainsFunc(refusals, reply.HasErrorCode)
}

// passing are the codes of an answer that has to do with the server's state or the
// client's rights, not with what the server can do.
var passing = []int{
	13, 18, 8000, 371, 462, // rights, blocked, overloaded
	10107, 13435, 10058, 13436, 91, 189, 11600, 11601, 11602, // primary, shutdown, interrupted
	50, 262, 6, 7, 89, 9001, 64, 112, 133, 134, // time limits, network between servers, conflicts
}

// incapable tells whether the server answered that it cannot do what was asked.
func incapable(err error) bool {
	var reply mongo.CommandError
	return errors.As(err, &reply) && reply.Code != 0 && !reply.HasErrorLabel("NetworkError") &&
		!slices.Contains(passing, int(reply.Code))
}

// movedPrimary tells whether another server is to be asked.
func movedPrimary(err error) bool {
	var reply mongo.ServerError
	return errors.As(err, &reply) && (reply.HasErrorCode(10107) || reply.HasErrorCode(13435) || reply.HasErrorCode(10058))
}

// concernFailed tells whether a write was applied but not confirmed by a majority.
func concernFailed(err error) bool {
	var failed mongo.WriteException
	return errors.As(err, &failed) && failed.WriteConcernError != nil
}

// duplicateKey tells whether a write was refused by a unique index.
func duplicateKey(err error) bool { return mongo.IsDuplicateKeyError(err) && !concernFailed(err) }

// ourIndex returns an error if a duplicate key is of another index than the log's: its
// refusal says nothing about the side effect. Where the server does not say, reading
// the record will.
func ourIndex(duplicate error) error {
	if pattern, said := keyPattern(duplicate); said && !sameKeys(pattern, identityKeys()) {
		return finalError{fmt.Errorf("a unique index other than the log's refused the record: %w", duplicate)}
	}
	return nil
}

// keyPattern finds the refusing index's keys in the server's reply.
func keyPattern(duplicate error) (bson.Raw, bool) {
	var raws []bson.Raw
	var command mongo.CommandError
	if errors.As(duplicate, &command) {
		raws = append(raws, command.Raw)
	}
	var writes mongo.WriteException
	if errors.As(duplicate, &writes) {
		for _, w := range writes.WriteErrors {
			raws = append(raws, w.Raw)
		}
	}
	for _, raw := range raws {
		if pattern, ok := raw.Lookup("keyPattern").DocumentOK(); ok {
			return pattern, true
		}
	}
	return nil, false
}

// decoded marks a reply that cannot be decoded.
func decoded(err error) error {
	var reply mongo.LabeledError
	switch {
	case err == nil, errors.As(err, &reply), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), mongo.IsTimeout(err):
		return err
	}
	var decode *bson.DecodeError
	if errors.As(err, &decode) {
		return finalError{fmt.Errorf("%w: %w", semantic.ErrCorrupt, err)}
	}
	return err
}
