package testkit

import (
	"context"
	"slices"
	"testing"

	"github.com/wrkbelt/coord/semantic"
)

// fanoutBug is a fan-out that breaks one promise.
type fanoutBug struct {
	*Fanout
	enqueue func(f *Fanout, ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error)
}

func (b *fanoutBug) Enqueue(ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
	return b.enqueue(b.Fanout, ctx, domain, records)
}

// mapped changes each record on its way to a correct fan-out.
func mapped(change func(i int, r semantic.FanoutRecord, err error) (semantic.FanoutRecord, error)) func(*Fanout, context.Context, string, semantic.Records) (semantic.FanoutReport, error) {
	return func(f *Fanout, ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
		if records == nil {
			return f.Enqueue(ctx, domain, nil)
		}
		return f.Enqueue(ctx, domain, func(yield func(semantic.FanoutRecord, error) bool) {
			i := 0
			for r, err := range records {
				r, err = change(i, r, err)
				i++
				if !yield(r, err) {
					return
				}
			}
		})
	}
}

// reported changes the report of a correct fan-out.
func reported(change func(r *semantic.FanoutReport, err error) error) func(*Fanout, context.Context, string, semantic.Records) (semantic.FanoutReport, error) {
	return func(f *Fanout, ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
		report, err := f.Enqueue(ctx, domain, records)
		err = change(&report, err)
		return report, err
	}
}

// TestFanoutSuiteBites shows that each broken fan-out fails the case named for it.
func TestFanoutSuiteBites(t *testing.T) {
	for _, seeded := range []struct {
		bug     string
		fail    string // the case that must catch it
		enqueue func(f *Fanout, ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error)
	}{
		{"failed entries count as sent", "an unreachable queue fails every record as unavailable, and reports the first hundred",
			reported(func(r *semantic.FanoutReport, err error) error {
				r.Enqueued, r.Failed, r.Failures = r.Enqueued+r.Failed, 0, nil
				return err
			})},
		{"every failure is reported", "an unreachable queue fails every record as unavailable, and reports the first hundred",
			reported(func(r *semantic.FanoutReport, err error) error {
				for int64(len(r.Failures)) < r.Failed {
					r.Failures = append(r.Failures, r.Failures[0])
				}
				return err
			})},
		{"a skipped record is not scanned", "a record that cannot be read is skipped and the scan goes on",
			reported(func(r *semantic.FanoutReport, err error) error { r.Scanned -= r.Skipped; return err })},
		{"a skipped record ends the scan", "a record that cannot be read is skipped and the scan goes on",
			mapped(func(_ int, r semantic.FanoutRecord, err error) (semantic.FanoutRecord, error) {
				if semantic.IsSkipped(err) {
					err = context.DeadlineExceeded
				}
				return r, err
			})},
		{"the scan's error is swallowed", "any other error ends the scan and is returned beside the report",
			reported(func(*semantic.FanoutReport, error) error { return nil })},
		{"the version is left out of the identity", "the same record and version is queued once, a new version again",
			mapped(func(_ int, r semantic.FanoutRecord, err error) (semantic.FanoutRecord, error) {
				r.Version = "always"
				return r, err
			})},
		{"every send is a new message", "the same record and version is queued once, a new version again",
			func(f *Fanout, ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
				clear(f.backend.seen)
				return f.Enqueue(ctx, domain, records)
			}},
		{"parts of the identity are only joined", "identities that only look alike are different records",
			func(f *Fanout, ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
				joined := map[string]bool{}
				return mapped(func(_ int, r semantic.FanoutRecord, err error) (semantic.FanoutRecord, error) {
					if id := r.OrganizationID + r.RecordID + r.Version; joined[id] {
						err = semantic.SkipRecord(context.Canceled)
					} else {
						joined[id] = true
					}
					return r, err
				})(f, ctx, domain, records)
			}},
		{"a group is sent backwards", "records of one group are queued in their order",
			func(f *Fanout, ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
				report, err := f.Enqueue(ctx, domain, records)
				slices.Reverse(f.backend.queued)
				return report, err
			}},
		{"an invalid record is dropped silently", "an invalid record fails alone",
			mapped(func(_ int, r semantic.FanoutRecord, err error) (semantic.FanoutRecord, error) {
				if checkRecord(r) != nil {
					err = semantic.SkipRecord(context.Canceled)
				}
				return r, err
			})},
		{"an unanswered send is sent under a new identity", "a lost reply neither loses a record nor queues it twice",
			func(f *Fanout, ctx context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
				if lost, _ := f.backend.replyLost(); lost {
					_, _ = f.Enqueue(ctx, domain, records)
					clear(f.backend.seen)
				}
				return f.Enqueue(ctx, domain, records)
			}},
		{"an unanswered send counts as unavailable", "a record none of whose replies arrived is unknown, and safe to enqueue again",
			reported(func(r *semantic.FanoutReport, err error) error {
				for i := range r.Failures {
					r.Failures[i].Code = "UNAVAILABLE"
				}
				return err
			})},
		{"the context is ignored", "a context that has ended queues nothing more",
			func(f *Fanout, _ context.Context, domain string, records semantic.Records) (semantic.FanoutReport, error) {
				return f.Enqueue(context.Background(), domain, records)
			}},
		{"a cut enqueue forgets what it had read", "cancelling ends a silent enqueue promptly, with every record accounted for",
			reported(func(r *semantic.FanoutReport, err error) error {
				if err != nil {
					r.Failed, r.Failures = 0, nil
				}
				return err
			})},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
			clock := NewClock()
			var backend *FanoutBackend
			wantFailure(t, seeded.fail, FanoutCases(), Backend[FanoutQueue]{
				New: func(_ T, n int) []FanoutQueue {
					backend = NewFanoutBackend(clock)
					return slices.Repeat([]FanoutQueue{&fanoutBug{backend.Client(), seeded.enqueue}}, n)
				},
				Advance: clock.Advance,
				Fault:   func(_ T, f Fault) (heal func()) { return backend.Inject(f) },
			})
		})
	}
}
