package cronfx

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	maxSleep  = 30 * time.Second // the longest time in which a jump of the clock goes unnoticed
	steppedBy = 24 * time.Hour   // a clock set back by more was wrong before
)

// session is the time between a Start and a Stop. It owns every goroutine and timer.
type session struct {
	r      *Runner
	ctx    context.Context // of every run
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	ended bool
	busy  sync.WaitGroup
	stops map[*job]func() bool // the timer of each job
}

func newSession(r *Runner) *session {
	s := &session{r: r, stops: map[*job]func() bool{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// spawn runs f on a goroutine of the session, unless that has ended.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.busy.Go(f)
	}
	return !s.ended
}

// end begins nothing more and cancels what runs.
func (s *session) end() {
	s.mu.Lock()
	s.ended = true
	for _, stop := range s.stops {
		stop()
	}
	s.mu.Unlock()
	s.cancel(ErrStopped)
}

// idle returns a channel that is closed once nothing runs any more.
func (s *session) idle() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.busy.Wait()
	}()
	return done
}

// begin starts the row of timers of one job.
func (s *session) begin(j *job) {
	now := s.r.clock.Now()
	from := now
	if j.policies.Misfire != MisfireSkip {
		from = j.windowStart(now) // for ticks that passed while no process was there
	}
	// What passed before is another's to report, if anyone's.
	if run := s.wake(j, from, false); run != nil {
		go run()
	}
}

// wake sets the job's next timer and returns what there is to do about the ticks that
// are due after from, nil for nothing. The session waits for it, so it must be called.
func (s *session) wake(j *job, from time.Time, report bool) (run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	now := s.r.clock.Now()
	from = s.r.history[j].pass(from, now)
	due := j.due(from, now)
	last, sleep := later(from, now), maxSleep
	if !due.next.IsZero() {
		sleep = min(sleep, due.next.Sub(now))
	}
	s.stops[j] = s.r.clock.AfterFunc(sleep, func() {
		switch run := s.wake(j, last, true); {
		case run == nil:
		case j.policies.Jitter > 0:
			go run()
		default:
			run() // so that a clock which a test moves can wait for a short run
		}
	})
	report = report && due.missed
	if len(due.run) == 0 && !report {
		return nil
	}
	s.busy.Add(1)
	return func() {
		defer s.busy.Done()
		if report {
			s.recordMissed(j, due, now)
		}
		if jitter := j.policies.Jitter; jitter > 0 && !s.sleep(s.ctx, rand.N(jitter)) {
			return // unclaimed: another replica has it
		}
		for _, instant := range due.run {
			if s.ctx.Err() != nil {
				return
			}
			s.runTick(s.ctx, j, Tick{Job: j.name, Instant: instant, Attempt: 1}, nil)
		}
	}
}

// due is what a wake found.
type due struct {
	run    []time.Time // to be run, oldest first
	missed bool        // whether there were others
	oldest time.Time   // of those
	next   time.Time   // the first tick that is not due yet
}

// due tells which ticks after from and up to now are to be run. Its work is bounded,
// however many there are.
func (j *job) due(from, now time.Time) due {
	oldest := j.schedule.next(from)
	if oldest.IsZero() || oldest.After(now) {
		return due{next: oldest}
	}
	run := latest(j.schedule, later(from, j.windowStart(now)), now, j.policies.CatchUp)
	if n := len(run); j.policies.Misfire == MisfireSkip && n > 0 && now.Sub(run[n-1]) > onTime {
		run = nil
	}
	return due{
		run: run, missed: len(run) == 0 || oldest.Before(run[0]), oldest: oldest,
		next: j.schedule.next(later(from, now)),
	}
}

// windowStart is the instant after which a tick may still start at now.
func (j *job) windowStart(now time.Time) time.Time { return now.Add(-j.policies.LateWindow - 1) }

// latest returns the last n ticks after from and up to now.
func latest(s schedule, from, now time.Time, n int) []time.Time {
	for reach := time.Second; ; reach *= 4 {
		start := now.Add(-reach)
		whole := !start.After(from)
		if whole {
			start = from
		}
		var found []time.Time
		for t := s.next(start); !t.IsZero() && !t.After(now); t = s.next(t) {
			if len(found) == n {
				found = append(found[:0], found[1:]...)
			}
			found = append(found, t)
		}
		if whole || len(found) == n {
			return found
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sleep waits for d and tells whether it passed before ctx ended.
func (s *session) sleep(ctx context.Context, d time.Duration) bool {
	woken := make(chan struct{})
	stop := s.r.clock.AfterFunc(d, func() { close(woken) })
	defer stop()
	select {
	case <-woken:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// bounded gives one question to the lock or the lease its budget. It is real time that
// is spent on the wire, whatever the runner's clock is.
func bounded(ctx context.Context) (question context.Context, cancel func()) {
	return context.WithTimeout(ctx, claimBudget)
}

// timed returns a context that ends after d by the runner's clock.
func (s *session) timed(ctx context.Context, d time.Duration) (timed context.Context, cancel func()) {
	timed, end := context.WithCancelCause(ctx)
	stop := s.r.clock.AfterFunc(d, func() { end(fmt.Errorf("timeout of %v: %w", d, context.DeadlineExceeded)) })
	return timed, func() {
		stop()
		end(nil)
	}
}
