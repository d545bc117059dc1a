package cronfx

import (
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// RunRecord is what one replica knows of one tick.
type RunRecord struct {
	Job     string
	Instant time.Time // as scheduled, UTC
	Manual  bool
	Attempt int
	Replica string // whose record this is
	Start   time.Time
	End     time.Time
	Outcome Outcome
	// SkipReason says in words why the job did not run here, for a gated or skipped
	// tick.
	SkipReason string
	// Fanout counts the records of a [FanoutJob] that ran, also when it failed.
	Fanout *semantic.FanoutReport
	// Err is why the run failed or the gate could not say.
	Err error
}

// Outcome says what became of a tick on one replica.
type Outcome string

const (
	// OutcomeCompleted: it ran here and succeeded.
	OutcomeCompleted Outcome = "COMPLETED"
	// OutcomeFailed: it ran here and returned an error or panicked.
	OutcomeFailed Outcome = "FAILED"
	// OutcomeInterrupted: it won here, and a stop of the runner cut it short.
	OutcomeInterrupted Outcome = "INTERRUPTED"
	// OutcomeGated: another replica had claimed it. The quiet, usual case.
	OutcomeGated Outcome = "GATED"
	// OutcomeSkippedOverlap: it won here, and its predecessor was still running.
	OutcomeSkippedOverlap Outcome = "SKIPPED_OVERLAP"
	// OutcomeSkippedUnavailable: lock or lease could not say; it was not run ungated.
	OutcomeSkippedUnavailable Outcome = "SKIPPED_UNAVAILABLE"
	// OutcomeSkippedMisfire: it was noticed too late for the job's policies.
	OutcomeSkippedMisfire Outcome = "SKIPPED_MISFIRE"
)

// Ran tells whether the job's function was run.
func (o Outcome) Ran() bool {
	return o == OutcomeCompleted || o == OutcomeFailed || o == OutcomeInterrupted
}

// JobStatus is what one replica knows of one job.
type JobStatus struct {
	Name     string
	Schedule string
	TimeZone string
	Fanout   bool      // whether it is a [FanoutJob]
	Next     time.Time // its next tick, UTC
	Running  int       // runs of it on this replica now
	// LastSuccess is when a run last completed on this replica, zero for never: an
	// alert on its age, taken over all replicas, sees a job that only skips.
	LastSuccess time.Time
	// Last is this replica's latest record, nil before the first.
	Last *RunRecord
}

// history keeps the latest records of one job.
type history struct {
	mu          sync.Mutex
	limit       int
	records     []RunRecord // oldest first
	lastSuccess time.Time
	running     map[string]struct{} // holders of the runs on this replica
	passed      time.Time           // no tick up to here is fired any more, across a Stop too
}

func newHistory(limit int) *history { return &history{limit: limit, running: map[string]struct{}{}} }

func (h *history) add(r RunRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.records) == h.limit {
		copy(h.records, h.records[1:])
		h.records = h.records[:h.limit-1]
	}
	h.records = append(h.records, r)
	if r.Outcome == OutcomeCompleted && r.End.After(h.lastSuccess) {
		h.lastSuccess = r.End
	}
}

// pass marks every tick up to now as passed and returns after which instant ticks
// are still to be fired: from, or later if they were passed before.
func (h *history) pass(from, now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passed.Sub(now) > steppedBy {
		h.passed, from = now, now
	}
	from = later(from, h.passed)
	h.passed = later(h.passed, now)
	return from
}

// all returns the records, newest first.
func (h *history) all() []RunRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]RunRecord, 0, len(h.records))
	for i := len(h.records) - 1; i >= 0; i-- {
		out = append(out, h.records[i])
	}
	return out
}

func (h *history) begin(holder string) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[holder] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.running, holder)
	}
}

// holder returns one of the runs on this replica, "" for none.
func (h *history) holder() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for holder := range h.running {
		return holder
	}
	return ""
}

func (h *history) fill(s *JobStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Running, s.LastSuccess = len(h.running), h.lastSuccess
	if n := len(h.records); n > 0 {
		last := h.records[n-1]
		s.Last = &last
	}
}
