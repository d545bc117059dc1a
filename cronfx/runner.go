package cronfx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
)

// ErrStopped is the cause of a run's context that ended because the runner stops.
var ErrStopped = errors.New("cron runner is stopping")

// ErrNotRunning refuses a [Runner.Trigger] before Start and after Stop.
var ErrNotRunning = errors.New("cron runner is not running")

// Runner runs jobs at their ticks, each tick on exactly one replica. It is made inert;
// Start and Stop may alternate any number of times.
//
// Safe for concurrent use.
type Runner struct {
	lock      semantic.DistributedLock
	lease     semantic.ResourceLease
	fanout    semantic.Fanout // nil without a FanoutJob
	signals   *observability.Signals
	clock     semantic.Clock
	replica   string
	maxSkew   time.Duration
	retention time.Duration // the configured floor
	onRun     func(RunRecord)

	jobs    []*job // by name
	history map[*job]*history

	mu      sync.Mutex
	session *session // nil while not running
}

// Params are what a Runner is made of.
type Params struct {
	// Lock gates the ticks. Required.
	Lock semantic.DistributedLock
	// Lease guards overlap. Required.
	Lease semantic.ResourceLease
	// Fanout gives the queue; it is called once, by [NewRunner], and only when there
	// is a [FanoutJob].
	Fanout func() (semantic.Fanout, error)
	// Signals receives cron.tick.skipped and cron.job.failed; nil for none.
	Signals *observability.Signals
	// InstanceID names this replica in records and leases: 1 to 200 bytes. Required.
	InstanceID string
	// Clock is nil for the system's.
	Clock semantic.Clock
	// Jobs are the definitions; their names differ.
	Jobs []Definition
	// MaxSkew is the largest difference between two replicas' clocks that ticks are
	// kept apart for. The default is 5 minutes.
	MaxSkew time.Duration
	// Retention is the least time for which a claimed tick is remembered; the default
	// is 10 minutes. It is never less than a job's late window, jitter and MaxSkew
	// together, so that no replica claims a tick a second time.
	Retention time.Duration
	// History is how many records are kept for each job; the default is 100.
	History int
	// Telemetry receives metrics and spans; the zero value means none.
	Telemetry observability.Telemetry
	// OnRun, if set, is called after each record is made, on the tick's goroutine. It
	// must not call [Runner.Stop].
	OnRun func(RunRecord)
}

const (
	defaultMaxSkew   = 5 * time.Minute
	defaultRetention = 10 * time.Minute
	defaultHistory   = 100
)

// NewRunner checks everything about the jobs and returns a runner that does nothing
// yet. There is no I/O. Errors match [semantic.ErrInvalidArgument] and name the job
// and the setting, or are those of Params.Fanout.
func NewRunner(p Params) (*Runner, error) {
	if err := checkParams(p); err != nil {
		return nil, err
	}
	r := &Runner{
		lock: p.Lock, lease: p.Lease, signals: p.Signals, replica: p.InstanceID, onRun: p.OnRun,
		clock:     p.Clock,
		maxSkew:   orDefault(p.MaxSkew, defaultMaxSkew),
		retention: orDefault(p.Retention, defaultRetention),
		history:   map[*job]*history{},
	}
	if r.clock == nil {
		r.clock = semantic.SystemClock{}
	}
	var faults []error
	fanoutJob := ""
	taken := map[string]bool{}
	for _, definition := range p.Jobs {
		j, err := compileAny(definition, r.clock.Now())
		switch {
		case err != nil:
			faults = append(faults, err)
			continue
		case taken[j.name]:
			faults = append(faults, ofJob(j.name, &semantic.ArgumentError{Operation: opNew, Argument: "Name", Value: j.name, Allowed: "a name that no other job has"}))
			continue
		case j.isFanout():
			fanoutJob = j.name
		}
		r.jobs = append(r.jobs, j)
		r.history[j] = newHistory(orDefault(p.History, defaultHistory))
		taken[j.name] = true
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if err := measureJobs(p.Telemetry, r.jobs); err != nil {
		return nil, err
	}
	slices.SortFunc(r.jobs, func(a, b *job) int { return strings.Compare(a.name, b.name) })
	if fanoutJob == "" {
		return r, nil
	}
	if p.Fanout == nil {
		return nil, ofJob(fanoutJob, &semantic.ArgumentError{Operation: opNew, Argument: "Fanout", Value: "nil", Allowed: "a queue, because this is a FanoutJob"})
	}
	var err error
	if r.fanout, err = p.Fanout(); err != nil {
		return nil, ofJob(fanoutJob, fmt.Errorf("fan-out queue: %w", err))
	}
	return r, nil
}

func checkParams(p Params) error {
	refuse := func(argument string, value any, allowed string) error {
		return &semantic.ArgumentError{Operation: opNew, Argument: argument, Value: value, Allowed: allowed}
	}
	if p.Lock == nil {
		return refuse("Lock", "nil", "a DistributedLock")
	}
	if p.Lease == nil {
		return refuse("Lease", "nil", "a ResourceLease")
	}
	if err := semantic.ValidateName(opNew, "InstanceID", p.InstanceID); err != nil {
		return err
	}
	if len(p.InstanceID) > maxNameBytes {
		return refuse("InstanceID", p.InstanceID[:32]+"…", fmt.Sprintf("at most %d bytes", maxNameBytes))
	}
	if p.MaxSkew < 0 || p.MaxSkew > semantic.MaxTTL/4 {
		return refuse("MaxSkew", p.MaxSkew, "0 to "+(semantic.MaxTTL/4).String())
	}
	if p.Retention < 0 || p.Retention > semantic.MaxTTL {
		return refuse("Retention", p.Retention, "0 to "+semantic.MaxTTL.String())
	}
	if p.History < 0 || p.History > 10_000 {
		return refuse("History", p.History, "0 to 10000")
	}
	return nil
}

func compileAny(d Definition, now time.Time) (*job, error) {
	if d == nil {
		return nil, &semantic.ArgumentError{Operation: opNew, Argument: "Jobs", Value: "nil", Allowed: "a Job or a FanoutJob"}
	}
	return d.compile(now)
}

// Start begins to work the ticks and returns at once. ctx only decides whether to
// begin: the runner does not end with it. It returns an error when the runner is
// running already.
func (r *Runner) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cron runner start: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != nil {
		return errors.New("cron runner start: it is running already")
	}
	s := newSession(r)
	r.session = s
	for _, j := range r.jobs {
		s.begin(j)
	}
	return nil
}

// Stop begins no further tick, cancels the context of the running handlers (cause
// [ErrStopped]) and waits for them for as long as ctx lasts. It returns an error that
// names the jobs that were still running then and matches ctx's error; their leases
// are released when they return. A runner that is not running is stopped already.
func (r *Runner) Stop(ctx context.Context) error {
	r.mu.Lock()
	s := r.session
	r.session = nil
	r.mu.Unlock()
	if s == nil {
		return nil
	}
	s.end()
	select {
	case <-s.idle():
		return nil
	case <-ctx.Done():
	}
	select {
	case <-s.idle(): // both were ready
		return nil
	default:
		return fmt.Errorf("cron runner stop: still running: %s: %w", strings.Join(r.runningJobs(), ", "), ctx.Err())
	}
}

func (r *Runner) runningJobs() []string {
	var names []string
	for _, j := range r.jobs {
		if r.history[j].holder() != "" {
			names = append(names, j.name)
		}
	}
	return names
}

// Jobs returns the state of every job on this replica, by name.
func (r *Runner) Jobs() []JobStatus {
	now := r.clock.Now()
	out := make([]JobStatus, 0, len(r.jobs))
	for _, j := range r.jobs {
		s := JobStatus{Name: j.name, Schedule: j.spec, TimeZone: j.zone, Fanout: j.isFanout(), Next: j.schedule.next(now)}
		r.history[j].fill(&s)
		out = append(out, s)
	}
	return out
}

// NextRuns returns the next n ticks of a job after now, in UTC; fewer where the
// schedule has no more. n is 1 to 1,000. Errors match [semantic.ErrInvalidArgument].
func (r *Runner) NextRuns(jobName string, n int) ([]time.Time, error) {
	const op = "cronfx.nextRuns"
	j, err := r.find(op, jobName)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > 1000 {
		return nil, &semantic.ArgumentError{Operation: op, Argument: "n", Value: n, Allowed: "1 to 1000"}
	}
	out := make([]time.Time, 0, n)
	for t := j.schedule.next(r.clock.Now()); !t.IsZero() && len(out) < n; t = j.schedule.next(t) {
		out = append(out, t)
	}
	return out, nil
}

// History returns this replica's latest records of a job, newest first; none for a job
// that it does not know.
func (r *Runner) History(jobName string) []RunRecord {
	j, err := r.find("cronfx.history", jobName)
	if err != nil {
		return nil
	}
	return r.history[j].all()
}

// Trigger runs a job now, through the same guards as a tick: two triggers within one
// second anywhere in the cluster are one run, and the overlap policy holds. It blocks
// until the run has ended. When ctx ends first it cancels the run and returns ctx's
// error at once; the record is in the history when the handler has returned. Other
// errors match [semantic.ErrInvalidArgument] or [ErrNotRunning]; what became of the
// run is in the record.
func (r *Runner) Trigger(ctx context.Context, jobName string) (RunRecord, error) {
	j, err := r.find("cronfx.trigger", jobName)
	if err != nil {
		return RunRecord{}, err
	}
	r.mu.Lock()
	s := r.session
	r.mu.Unlock()
	if s == nil {
		return RunRecord{}, fmt.Errorf("cronfx.trigger %q: %w", jobName, ErrNotRunning)
	}
	tick := Tick{Job: j.name, Instant: r.clock.Now().UTC().Truncate(time.Second), Manual: true, Attempt: 1}
	done := make(chan RunRecord, 1)
	begun := s.spawn(func() {
		work, cancel := context.WithCancelCause(s.ctx)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		s.runTick(work, j, tick, func(rec RunRecord) { done <- rec })
	})
	if !begun {
		return RunRecord{}, fmt.Errorf("cronfx.trigger %q: %w", jobName, ErrNotRunning)
	}
	select {
	case rec := <-done:
		return rec, nil
	case <-ctx.Done():
		return RunRecord{}, fmt.Errorf("cronfx.trigger %q: %w", jobName, ctx.Err())
	}
}

func (r *Runner) find(op, name string) (*job, error) {
	known := make([]string, len(r.jobs))
	for i, j := range r.jobs {
		if j.name == name {
			return j, nil
		}
		known[i] = j.name
	}
	return nil, &semantic.ArgumentError{Operation: op, Argument: "job", Value: name, Allowed: "one of: " + strings.Join(known, ", ")}
}

// retain is how long a claimed tick of j is remembered: until no replica can still
// find it within its late window, however its clock differs.
func (r *Runner) retain(j *job) time.Duration {
	return max(r.retention, j.policies.LateWindow+j.policies.Jitter+r.maxSkew+2*claimBudget)
}
