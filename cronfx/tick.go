package cronfx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

const (
	claimBudget = 5 * time.Second // for one question to the lock or the lease
	maxAttempts = 3               // of one tick under CrashTakeOver, so that a tick that kills its replica cannot kill all
)

func instantKey(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// key is the lock key of the tick.
func (t Tick) key() string {
	switch {
	case t.Manual:
		return "cron-tick:" + t.Job + ":manual:" + instantKey(t.Instant)
	case t.Attempt > 1:
		return fmt.Sprintf("cron-tick:%s:%s:attempt-%d", t.Job, instantKey(t.Instant), t.Attempt)
	default:
		return "cron-tick:" + t.Job + ":" + instantKey(t.Instant)
	}
}

// attempt returns the tick as its n-th attempt.
func (t Tick) attempt(n int) Tick {
	t.Attempt = n
	return t
}

func overlapKey(j *job) string { return "cron-run:" + j.name }

func attemptKey(t Tick) string { return "cron-attempt:" + t.Job + ":" + instantKey(t.Instant) }

// leases returns what a run of the tick holds, in the order of taking.
func (j *job) leases(t Tick) []string {
	keys := j.overlapLease()
	if j.takenOver(t) {
		keys = append(keys, attemptKey(t))
	}
	return keys
}

func (j *job) overlapLease() []string {
	if j.policies.Overlap == OverlapAllow {
		return nil
	}
	return []string{overlapKey(j)}
}

// takenOver tells whether another replica runs the tick again if this one dies in it.
func (j *job) takenOver(t Tick) bool { return j.policies.Crash == CrashTakeOver && !t.Manual }

// holder names this run in its leases. It differs between two runs on one replica, to
// which a lease would otherwise seem to be one holder's refresh.
func (s *session) holder(t Tick) string {
	name := s.r.replica + "@" + instantKey(t.Instant)
	switch {
	case t.Manual:
		name += "/manual"
	case t.Attempt > 1:
		name += fmt.Sprintf("/attempt-%d", t.Attempt)
	}
	return name
}

var errGoexit = errors.New("handler ended its goroutine")

// runTick takes a tick through its guards, runs it if they let it, and records what
// became of it. done, which may be nil, gets the record.
func (s *session) runTick(ctx context.Context, j *job, t Tick, done func(RunRecord)) {
	rec := s.newRecord(j, t)
	later := ctx
	ctx, call := j.measures.tick.Begin(ctx, t.key())
	defer func() { // also when the handler ends its goroutine
		s.finish(j, &rec)
		call.End(rec.Outcome.measured(), rec.Err)
		if done != nil {
			done(rec)
		}
		if rec.Outcome == OutcomeGated && j.takenOver(t) {
			s.spawn(func() { s.watch(later, j, t) })
		}
	}()
	if !s.claim(ctx, j, t, &rec) {
		return
	}
	s.runHolding(ctx, j, t, j.leases(t), j.policies.Overlap == OverlapDelay, &rec)
}

// runHolding runs the handler while holding the leases of keys, waiting for the
// predecessor to end if wait says so.
func (s *session) runHolding(ctx context.Context, j *job, t Tick, keys []string, wait bool, rec *RunRecord) {
	run := func(ctx context.Context) error { return s.call(ctx, j, t, rec) }
	missing, err := s.holdAll(ctx, j, t, keys, run)
	if missing == overlapKey(j) && err == nil && wait {
		missing, err = s.delay(ctx, j, t, keys, run)
	}
	switch {
	case missing == "": // it ran
	case ctx.Err() != nil:
		rec.interrupted(ctx, "stopped before it began")
	case err != nil:
		rec.skip(OutcomeSkippedUnavailable, "the lease could not say", err)
	case missing == overlapKey(j):
		rec.skip(OutcomeSkippedOverlap, s.overlapReason(j), nil)
		if j.takenOver(t) {
			s.markEnded(ctx, j, t) // skipped is decided, not to be made up for
		}
	default:
		rec.skip(OutcomeGated, "taken over by another replica", nil)
	}
}

// claim takes the tick's key. It is never given back once the run may have begun.
func (s *session) claim(ctx context.Context, j *job, t Tick, rec *RunRecord) bool {
	question, cancel := bounded(ctx)
	// By the wall clock: the monotonic one may stand still while a machine sleeps.
	forgotten := semantic.SafeUntil(s.r.clock.Now(), s.r.retain(j)).Round(0)
	claim, err := s.r.lock.Acquire(question, t.key(), s.r.retain(j), semantic.WithoutFence())
	cancel()
	switch {
	case claim.Acquired && ctx.Err() != nil:
		s.r.lock.Release(ctx, t.key(), claim.Token) // a replica that starts in time can have it
		rec.interrupted(ctx, "stopped before it began")
	case claim.Acquired && !s.r.clock.Now().Round(0).Before(forgotten):
		rec.skip(OutcomeSkippedMisfire, "this process was paused for longer than a tick is remembered", nil)
	case claim.Acquired:
		return true
	case claim.Reason == semantic.ReasonContended:
		rec.skip(OutcomeGated, "claimed by another replica", nil)
	case ctx.Err() != nil:
		rec.interrupted(ctx, "stopped before it began")
	default:
		rec.skip(OutcomeSkippedUnavailable, "the lock could not say", err)
	}
	return false
}

// holdAll runs f while holding every lease of keys, and returns f's error. When one is
// not to be had, missing names it and err is nil if another holder has it.
func (s *session) holdAll(ctx context.Context, j *job, t Tick, keys []string, f func(context.Context) error) (missing string, err error) {
	if len(keys) == 0 {
		return "", f(ctx)
	}
	// The claim has a budget, the run has not.
	budget, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := fmt.Errorf("no answer within %v: %w", claimBudget, context.DeadlineExceeded)
	stop := time.AfterFunc(claimBudget, func() { cancel(late) }).Stop
	defer stop()
	began := false
	_, err = s.r.lease.Hold(budget, keys[0], s.holder(t), j.policies.LeaseTTL, func(ctx context.Context) error {
		if !stop() { // the timer has gone off, though it may not have cancelled yet
			return late
		}
		began = true
		var err error
		missing, err = s.holdAll(ctx, j, t, keys[1:], f)
		return err
	})
	if !began {
		missing = keys[0]
	}
	return missing, err
}

// delay tries again until the predecessor has ended or the job's next tick is due.
func (s *session) delay(ctx context.Context, j *job, t Tick, keys []string, run func(context.Context) error) (missing string, err error) {
	from := s.r.clock.Now()
	until := j.schedule.next(later(t.Instant, from.Add(-j.policies.LateWindow)))
	pause := min(max(until.Sub(t.Instant)/20, 10*time.Millisecond), time.Second)
	for {
		left := until.Sub(s.r.clock.Now())
		if left <= 0 || !s.sleep(ctx, min(pause, left)) {
			return overlapKey(j), nil
		}
		missing, err = s.holdAll(ctx, j, t, keys, run)
		if missing != overlapKey(j) || err != nil {
			return missing, err
		}
	}
}

func (s *session) overlapReason(j *job) string {
	if holder := s.r.history[j].holder(); holder != "" {
		return "its predecessor still runs: " + holder
	}
	return "its predecessor still runs on another replica"
}

// call runs the handler and puts its result into rec.
func (s *session) call(ctx context.Context, j *job, t Tick, rec *RunRecord) error {
	defer s.r.history[j].begin(s.holder(t))()
	work := ctx
	if j.policies.Timeout > 0 {
		var cancel func()
		work, cancel = s.timed(ctx, j.policies.Timeout)
		defer cancel()
	}
	t.Organizations = s.r
	began := s.r.clock.Now()
	j.measures.began(ctx, t, began)
	defer func() { j.measures.ran(ctx, s.r.clock.Now().Sub(began), rec.Outcome) }()
	rec.Fanout, rec.Err = s.invoke(work, j, t)
	lost := errors.Is(context.Cause(ctx), semantic.ErrLeaseLost)
	if lost && !errors.Is(rec.Err, semantic.ErrLeaseLost) {
		rec.Err = errors.Join(rec.Err, semantic.ErrLeaseLost)
	}
	switch {
	case rec.Err == nil:
		rec.Outcome = OutcomeCompleted
	case ctx.Err() != nil && !lost:
		rec.Outcome = OutcomeInterrupted
	default:
		rec.Outcome = OutcomeFailed
	}
	if j.takenOver(t) && rec.Outcome != OutcomeInterrupted && !lost {
		s.markEnded(ctx, j, t)
	}
	return nil
}

// newRecord is the record of a tick that says nothing more about itself.
func (s *session) newRecord(j *job, t Tick) RunRecord {
	return RunRecord{
		Job: j.name, Instant: t.Instant, Manual: t.Manual, Attempt: t.Attempt, Replica: s.r.replica,
		Start: s.r.clock.Now(), Outcome: OutcomeFailed, Err: errGoexit,
	}
}

func (rec *RunRecord) skip(outcome Outcome, reason string, err error) {
	rec.Outcome, rec.SkipReason, rec.Err = outcome, reason, err
}

func (rec *RunRecord) interrupted(ctx context.Context, reason string) {
	rec.skip(OutcomeInterrupted, reason, context.Cause(ctx))
}

func (s *session) recordMissed(j *job, d due, now time.Time) {
	rec := s.newRecord(j, Tick{Job: j.name, Instant: d.oldest, Attempt: 1})
	until := now
	if len(d.run) > 0 {
		until = d.run[0]
	}
	rec.skip(OutcomeSkippedMisfire, fmt.Sprintf("noticed %v late; so were any until %s", now.Sub(d.oldest), instantKey(until)), nil)
	s.finish(j, &rec)
}

// finish completes the record, keeps it and tells of it.
func (s *session) finish(j *job, rec *RunRecord) {
	rec.End = s.r.clock.Now()
	s.r.history[j].add(*rec)
	j.measures.ticks.Add(context.Background(), 1, rec.Outcome.measured())
	switch rec.Outcome {
	case OutcomeFailed:
		s.r.signals.CronJobFailed(j.name, rec.Instant, rec.Err)
	case OutcomeInterrupted:
		s.r.signals.CronTickSkipped(j.name, rec.Instant, "INTERRUPTED", rec.Err)
	case OutcomeSkippedOverlap:
		s.r.signals.CronTickSkipped(j.name, rec.Instant, "OVERLAP", rec.Err)
	case OutcomeSkippedUnavailable:
		s.r.signals.CronTickSkipped(j.name, rec.Instant, "UNAVAILABLE", rec.Err)
	case OutcomeSkippedMisfire:
		s.r.signals.CronTickSkipped(j.name, rec.Instant, "MISFIRE", rec.Err)
	}
	s.observe(*rec)
}

// observe calls the hook, whose panic is its own.
func (s *session) observe(rec RunRecord) {
	if s.r.onRun == nil {
		return
	}
	defer func() { _ = recover() }()
	s.r.onRun(rec)
}
