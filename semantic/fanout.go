package semantic

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Fanout turns a scan into queued work, one message for each record. It is the
// second half of the cron pattern: the tick is gated once, the records are handled
// by whichever replica is free. The memory it needs does not grow with their number.
type Fanout interface {
	// Enqueue reads records to their end and sends each to the queue. It blocks
	// until every record has an outcome or ctx ends. The report always adds up:
	// Scanned = Enqueued + Failed + Skipped.
	//
	// A pair with an error made by [SkipRecord] is counted as Skipped; any other
	// error ends the scan and is returned beside the report of what was sent.
	// Records that could not be queued are in the report, not in err.
	Enqueue(ctx context.Context, domain string, records Records) (FanoutReport, error)
}

// Records is a stream of records, each with an error in its place where it could not
// be read; see [SkipRecord].
type Records = iter.Seq2[FanoutRecord, error]

// FanoutRecord is one unit of work.
type FanoutRecord struct {
	OrganizationID string // tenant
	RecordID       string // which record; with organisation and version its identity
	Version        string // what distinguishes one wish to handle it from the next, may be empty
	GroupID        string // records of one group are handled in order; empty: a group of its own
	Body           []byte // handed to the handler as it is, valid UTF-8
}

// FanoutReport accounts for every record of one Enqueue.
type FanoutReport struct {
	Scanned  int64
	Enqueued int64 // accepted by the queue, duplicates of earlier ones included
	Failed   int64
	Skipped  int64
	Calls    int64           // requests to the queue
	Failures []FanoutFailure // the first [MaxReportedFailures] of them
}

// MaxReportedFailures bounds FanoutReport.Failures.
const MaxReportedFailures = 100

// FanoutFailure is one record that was not queued.
type FanoutFailure struct {
	OrganizationID string
	RecordID       string
	Code           string // the queue's code, or INVALID, UNAVAILABLE, UNKNOWN, CANCELLED
	Err            error
}

type skipError struct{ reason error }

func (e *skipError) Error() string { return fmt.Sprintf("record skipped: %v", e.reason) }
func (e *skipError) Unwrap() error { return e.reason }

// SkipRecord marks a record of a stream that cannot be read and is to be counted as
// skipped, without ending the scan.
func SkipRecord(reason error) error { return &skipError{reason} }

// IsSkipped tells whether err was made by [SkipRecord].
func IsSkipped(err error) bool {
	var s *skipError
	return errors.As(err, &s)
}
