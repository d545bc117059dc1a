package cronfx

import (
	"context"

	"github.com/wrkbelt/coord/semantic"
)

// This file is CrashTakeOver. A run holds the tick's attempt lease; whoever gets that
// lease later knows that no run of the tick is alive. Whether one has ended or died is
// told by the keys of the further attempts: a run that ends takes them all.

// markEnded takes the keys of the further attempts.
func (s *session) markEnded(ctx context.Context, j *job, t Tick) {
	for n := t.Attempt + 1; n <= maxAttempts; n++ {
		question, cancel := bounded(context.WithoutCancel(ctx))
		// If it fails, the tick may be run again, as after a crash at this point.
		_, _ = s.r.lock.Acquire(question, t.attempt(n).key(), s.r.retain(j), semantic.WithoutFence())
		cancel()
	}
}

// watch waits for the run that gated this replica to end or die, and in the latter
// case runs the tick again. It gives up when the job's next tick is due, or when the
// keys that tell the two apart may have been forgotten.
func (s *session) watch(ctx context.Context, j *job, t Tick) {
	ttl := j.policies.LeaseTTL
	until := j.schedule.next(t.Instant)
	heard := s.r.clock.Now()
	// The winner takes its lease within the first ttl.
	for pause := ttl; s.sleep(ctx, pause); pause = ttl / 2 {
		now := s.r.clock.Now()
		if !now.Before(until) || now.Sub(heard) > s.r.retain(j)/2 {
			return
		}
		decided := false
		missing, err := s.holdAll(ctx, j, t.attempt(maxAttempts), []string{attemptKey(t)}, func(ctx context.Context) error {
			decided = s.takeOver(ctx, j, t)
			return nil
		})
		if decided {
			return
		}
		if missing != "" && err == nil { // a run is alive
			heard = s.r.clock.Now()
		}
	}
}

// takeOver runs the tick as its next attempt if one is left. It is called with the
// attempt lease held and returns false when it could not find out.
func (s *session) takeOver(ctx context.Context, j *job, t Tick) (decided bool) {
	for n := t.Attempt + 1; n <= maxAttempts; n++ {
		attempt := t.attempt(n)
		question, cancel := bounded(ctx)
		claim, _ := s.r.lock.Acquire(question, attempt.key(), s.r.retain(j), semantic.WithoutFence())
		cancel()
		switch {
		case claim.Acquired:
			rec := s.newRecord(j, attempt)
			ctx, call := j.measures.tick.Begin(ctx, attempt.key())
			defer func() {
				s.finish(j, &rec)
				call.End(rec.Outcome.measured(), rec.Err)
			}()
			// The dead run's overlap lease may lapse a little later than its other one.
			s.runHolding(ctx, j, attempt, j.overlapLease(), true, &rec)
			return true
		case claim.Reason != semantic.ReasonContended:
			return false
		}
	}
	return true
}
