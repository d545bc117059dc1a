package cronfx

import (
	"fmt"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// Policies say what happens when a job does not go as scheduled. The zero value is a
// sound choice of each.
type Policies struct {
	// Misfire decides about ticks that were noticed late: the process was starting,
	// paused or busy. The default is [MisfireLatest].
	Misfire Misfire
	// CatchUp is how many late ticks run under [MisfireCatchUp], 1 to 100.
	CatchUp int
	// LateWindow is how late a tick may still start; a later one is skipped. The
	// default is a minute.
	LateWindow time.Duration

	// Overlap decides about a tick whose predecessor still runs, on whichever
	// replica. The default is [OverlapSkip].
	Overlap Overlap
	// Crash decides about a tick whose replica died in it. The default is
	// [CrashAtMostOnce].
	Crash Crash
	// LeaseTTL is how long a crashed run still counts as running, at least a second;
	// a living one renews at a third of it. The default is 30 seconds.
	LeaseTTL time.Duration

	// Jitter delays each tick on each replica by a random time up to this, before it
	// is claimed: it spreads load, and wins between replicas. The default is none.
	Jitter time.Duration
	// Timeout ends the run's context; a handler that ignores its context is not
	// stopped and keeps its lease. The default is none.
	Timeout time.Duration
}

// Misfire decides about late ticks. A tick is late when it is noticed more than 5
// seconds after its instant, or together with a newer one.
type Misfire string

const (
	// MisfireSkip runs no late tick.
	MisfireSkip Misfire = "SKIP"
	// MisfireLatest runs the latest one within the late window, also one from before
	// the process started that no replica has claimed.
	MisfireLatest Misfire = "LATEST"
	// MisfireCatchUp runs up to CatchUp of the latest ones within the late window,
	// oldest first, one after the other.
	MisfireCatchUp Misfire = "CATCH_UP"
)

// Overlap decides about a tick whose predecessor still runs.
type Overlap string

const (
	// OverlapSkip skips the tick.
	OverlapSkip Overlap = "SKIP"
	// OverlapDelay waits for the predecessor to end, until the job's next tick is
	// due; then that one waits in its place. So at most one waits, the newest.
	OverlapDelay Overlap = "DELAY"
	// OverlapAllow runs them side by side; no lease is taken.
	OverlapAllow Overlap = "ALLOW"
)

// Crash decides about a tick whose replica died in it.
type Crash string

const (
	// CrashAtMostOnce leaves it: a tick starts at most once.
	CrashAtMostOnce Crash = "AT_MOST_ONCE"
	// CrashTakeOver lets another replica run it again as the next attempt once the
	// dead one's lease has lapsed, until the job's next tick is due. A run that a stop
	// cut short is taken over as well; one that failed is not.
	CrashTakeOver Crash = "TAKE_OVER"
)

const (
	defaultLateWindow = time.Minute
	defaultLeaseTTL   = 30 * time.Second
	maxCatchUp        = 100
	onTime            = 5 * time.Second // a tick noticed later than this is late
)

// settled checks the policies of job and fills in the defaults.
func (p Policies) settled() (Policies, error) {
	refuse := func(argument string, value any, allowed string) (Policies, error) {
		return p, &semantic.ArgumentError{Operation: opNew, Argument: argument, Value: value, Allowed: allowed}
	}
	p.Misfire = orDefault(p.Misfire, MisfireLatest)
	p.Overlap = orDefault(p.Overlap, OverlapSkip)
	p.Crash = orDefault(p.Crash, CrashAtMostOnce)
	p.LateWindow = orDefault(p.LateWindow, defaultLateWindow)
	p.LeaseTTL = orDefault(p.LeaseTTL, defaultLeaseTTL)

	switch p.Misfire {
	case MisfireSkip, MisfireLatest:
		if p.CatchUp != 0 {
			return refuse("CatchUp", p.CatchUp, "none unless Misfire is "+string(MisfireCatchUp))
		}
		p.CatchUp = 1
	case MisfireCatchUp:
		if p.CatchUp < 1 || p.CatchUp > maxCatchUp {
			return refuse("CatchUp", p.CatchUp, fmt.Sprintf("1 to %d", maxCatchUp))
		}
	default:
		return refuse("Misfire", string(p.Misfire), fmt.Sprint(MisfireSkip, ", ", MisfireLatest, " or ", MisfireCatchUp))
	}
	switch p.Overlap {
	case OverlapSkip, OverlapDelay, OverlapAllow:
	default:
		return refuse("Overlap", string(p.Overlap), fmt.Sprint(OverlapSkip, ", ", OverlapDelay, " or ", OverlapAllow))
	}
	switch p.Crash {
	case CrashAtMostOnce, CrashTakeOver:
	default:
		return refuse("Crash", string(p.Crash), fmt.Sprint(CrashAtMostOnce, " or ", CrashTakeOver))
	}
	for _, d := range []struct {
		name     string
		value    time.Duration
		from, to time.Duration
	}{
		{"LateWindow", p.LateWindow, semantic.MinTTL, semantic.MaxTTL / 4},
		{"LeaseTTL", p.LeaseTTL, time.Second, 24 * time.Hour},
		{"Jitter", p.Jitter, 0, 24 * time.Hour},
		{"Timeout", p.Timeout, 0, semantic.MaxTTL},
	} {
		if d.value < d.from || d.value > d.to {
			return refuse(d.name, d.value, fmt.Sprintf("%v to %v", d.from, d.to))
		}
	}
	return p, nil
}

// orDefault returns value, or fallback when it is zero.
func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
