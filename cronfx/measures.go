package cronfx

import (
	"context"
	"time"

	"github.com/wrkbelt/coord/observability"
)

// measures are the metrics and spans of one job. The zero value measures nothing.
type measures struct {
	tick          *observability.Operation
	ticks         *observability.Counter
	run, lag      *observability.Timer
	organizations *observability.Counter
}

// measureJobs gives every job its measures.
func measureJobs(t observability.Telemetry, jobs []*job) error {
	k := observability.NewKit(t, "cron")
	tick := k.Internal("coord.cron tick", "completed", "interrupted", "gated", "skipped_overlap", "skipped_unavailable", "missed")
	for _, j := range jobs {
		of := []string{observability.AttrJob, j.name}
		j.measures = measures{
			tick: tick, ticks: k.Counter("coord.cron.ticks", of...),
			run: k.Timer("coord.cron.run", of...), lag: k.Timer("coord.cron.lag", of...),
			organizations: k.Counter("coord.cron.organizations", of...),
		}
	}
	return k.Err()
}

// measured is the outcome's name in metrics and spans.
func (o Outcome) measured() string {
	switch o {
	case OutcomeCompleted:
		return "completed"
	case OutcomeInterrupted:
		return "interrupted"
	case OutcomeGated:
		return "gated"
	case OutcomeSkippedOverlap:
		return "skipped_overlap"
	case OutcomeSkippedUnavailable:
		return "skipped_unavailable"
	case OutcomeSkippedMisfire:
		return "missed"
	default:
		return "failed"
	}
}

// began measures how late a run of the tick begins, and ran how long it took.
func (m measures) began(ctx context.Context, t Tick, now time.Time) {
	if !t.Manual {
		m.lag.Record(ctx, now.Sub(t.Instant), "")
	}
}

func (m measures) ran(ctx context.Context, d time.Duration, o Outcome) {
	m.run.Record(ctx, d, o.measured())
}

// measured is the result's name in metrics.
func (r EnqueueGateResult) measured() string {
	switch r {
	case Enqueued:
		return "enqueued"
	case Gated:
		return "gated"
	default:
		return "failed"
	}
}
