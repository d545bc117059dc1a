package cronfx

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

const opNew = "cronfx.newRunner"

// Definition is a [Job] or a [FanoutJob].
type Definition interface {
	// compile checks the definition without I/O.
	compile(now time.Time) (*job, error)
}

// Job is a function that runs on exactly one replica per tick.
type Job struct {
	// Name identifies the job in the whole cluster: 1 to 200 bytes, no colon. It is
	// part of the tick's key: to rename a job is to make another.
	Name string
	// Schedule is five cron fields, six with seconds first, or @every 90s, @hourly,
	// @daily and the like. Names of days and months, L, W and # are understood. When
	// both day fields are restricted, a day that matches either is taken.
	Schedule string
	// TimeZone is the IANA zone of the schedule; empty for UTC.
	TimeZone string
	Policies Policies
	// Run does the work. Its context ends when the runner stops (cause
	// [ErrStopped]), when the overlap lease is lost (cause [semantic.ErrLeaseLost])
	// and after Policies.Timeout. A panic fails this run only.
	Run func(ctx context.Context, tick Tick) error
}

// FanoutJob scans for records at each tick and queues one message for each: the
// replica that wins the tick scans, and any free one handles a record.
type FanoutJob struct {
	Name     string // as in [Job]
	Schedule string // as in [Job]
	TimeZone string // as in [Job]
	Policies Policies
	// Domain names the records to their consumer; empty for Name.
	Domain string
	// Scan streams the records that are due. Only a batch of them is in memory at a
	// time. A panic in it fails this run only.
	Scan func(ctx context.Context, tick Tick) semantic.Records
	// ScanOrganization streams the due records of one organisation, for
	// [Runner.TryEnqueueOrgJob]. Without it that method refuses the job.
	ScanOrganization func(ctx context.Context, organizationID string) semantic.Records
	// Cooldown is how long an organisation is gated after TryEnqueueOrgJob queued
	// it; the default is 80 % of the shortest of the schedule's next intervals.
	Cooldown time.Duration
}

// Tick is one scheduled moment of a job.
type Tick struct {
	Job     string
	Instant time.Time // as scheduled, UTC; of a manual run the second in which it was asked for
	Manual  bool      // whether [Runner.Trigger] asked for it
	Attempt int       // 1, or more when it was taken over from a replica that died in it
	// Organizations is the runner, for a handler that fans out by tenant: with fx a
	// job cannot have the runner injected, which is made of the jobs.
	Organizations OrganizationGate
}

// OrganizationGate is [Runner.TryEnqueueOrgJob], so that a handler's test can fake it.
type OrganizationGate interface {
	TryEnqueueOrgJob(ctx context.Context, jobType, organizationID string) (EnqueueGateResult, error)
}

// job is a checked definition.
type job struct {
	name     string
	spec     string
	zone     string
	schedule schedule
	policies Policies

	run func(ctx context.Context, tick Tick) error // of a Job

	domain   string // the rest of a FanoutJob
	scan     func(ctx context.Context, tick Tick) semantic.Records
	scanOrg  func(ctx context.Context, organizationID string) semantic.Records
	cooldown time.Duration

	measures measures
}

func (j *job) isFanout() bool { return j.scan != nil }

func (d Job) compile(time.Time) (*job, error) {
	j, err := compile(d.Name, d.Schedule, d.TimeZone, d.Policies)
	if err == nil && d.Run == nil {
		err = &semantic.ArgumentError{Operation: opNew, Argument: "Run", Value: "nil", Allowed: "a function"}
	}
	if err != nil {
		return nil, ofJob(d.Name, err)
	}
	j.run = d.Run
	return j, nil
}

func (d FanoutJob) compile(now time.Time) (*job, error) {
	j, err := compile(d.Name, d.Schedule, d.TimeZone, d.Policies)
	if err != nil {
		return nil, ofJob(d.Name, err)
	}
	j.domain, j.scan, j.scanOrg, j.cooldown = orDefault(d.Domain, d.Name), d.Scan, d.ScanOrganization, d.Cooldown
	if j.cooldown == 0 {
		j.cooldown = min(max(shortestInterval(j.schedule, now)*4/5, semantic.MinTTL), semantic.MaxTTL)
	}
	err = errors.Join(
		semantic.ValidateName(opNew, "Domain", j.domain),
		semantic.ValidateDuration(opNew, "Cooldown", j.cooldown),
	)
	if d.Scan == nil {
		err = errors.Join(err, &semantic.ArgumentError{Operation: opNew, Argument: "Scan", Value: "nil", Allowed: "a function"})
	}
	if err != nil {
		return nil, ofJob(d.Name, err)
	}
	return j, nil
}

// maxNameBytes leaves room in a key for the instant, and in a lease's holder.
const maxNameBytes = 200

func compile(name, spec, zone string, policies Policies) (*job, error) {
	if err := semantic.ValidateName(opNew, "Name", name); err != nil {
		return nil, err
	}
	if len(name) > maxNameBytes || strings.Contains(name, ":") {
		// A colon would let two pairs of job and organisation share one key.
		return nil, &semantic.ArgumentError{Operation: opNew, Argument: "Name", Value: name, Allowed: fmt.Sprintf("at most %d bytes and no colon", maxNameBytes)}
	}
	s, err := parseSchedule(spec, zone)
	if err != nil {
		return nil, err
	}
	policies, err = policies.settled()
	if err != nil {
		return nil, err
	}
	return &job{name: name, spec: spec, zone: orDefault(zone, "UTC"), schedule: s, policies: policies}, nil
}

func ofJob(name string, err error) error { return fmt.Errorf("cron job %q: %w", name, err) }

// shortestInterval returns the shortest of the next intervals between two ticks.
func shortestInterval(s schedule, now time.Time) time.Duration {
	shortest := semantic.MaxTTL
	at := s.next(now)
	for range 32 {
		next := s.next(at)
		if next.IsZero() {
			break
		}
		shortest = min(shortest, next.Sub(at))
		at = next
	}
	return shortest
}
