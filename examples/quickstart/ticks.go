package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/wrkbelt/coord/cronfx"
)

// wantTicks is how many ticks the program shows.
const wantTicks = 3

// tickBoard collects what every replica says of every tick.
type tickBoard struct {
	mu      sync.Mutex
	out     io.Writer
	since   time.Time   // when the last replica had started; ticks before it do not count
	order   []time.Time // the ticks that count
	ticks   map[time.Time]*tickState
	failed  int64 // records that could not be queued
	changed chan struct{}
}

type tickState struct {
	reports int // replicas that have reported
	gated   int
	decided int // won here: ran, or skipped for a reason
}

func newTickBoard(out io.Writer) *tickBoard {
	return &tickBoard{out: out, ticks: map[time.Time]*tickState{}, changed: make(chan struct{}, 1)}
}

// record is the runner's OnRun hook of every replica.
func (b *tickBoard) record(r cronfx.RunRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.ticks[r.Instant]
	if state == nil {
		state = &tickState{}
		b.ticks[r.Instant] = state
		if !b.since.IsZero() && r.Instant.After(b.since) {
			b.order = append(b.order, r.Instant)
		}
	}
	state.reports++
	tick := r.Instant.Format(time.TimeOnly)
	switch {
	case r.Outcome == cronfx.OutcomeGated:
		state.gated++
		fmt.Fprintf(b.out, "tick %s  %s  gated\n", tick, r.Replica)
	case r.Fanout != nil:
		state.decided++
		b.failed += r.Fanout.Failed
		fmt.Fprintf(b.out, "tick %s  %s  won: scanned=%d enqueued=%d skipped=%d failed=%d in %v (%s)\n", tick, r.Replica,
			r.Fanout.Scanned, r.Fanout.Enqueued, r.Fanout.Skipped, r.Fanout.Failed, r.End.Sub(r.Start).Round(time.Millisecond), r.Outcome)
	case r.Outcome == cronfx.OutcomeSkippedUnavailable:
		fmt.Fprintf(b.out, "tick %s  %s  did not run: %s %s\n", tick, r.Replica, r.Outcome, r.SkipReason)
	default:
		state.decided++
		fmt.Fprintf(b.out, "tick %s  %s  won, did not run: %s %s\n", tick, r.Replica, r.Outcome, r.SkipReason)
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// begin makes the ticks count that are due from now on, which every replica sees.
func (b *tickBoard) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since = time.Now()
}

// complete tells whether replicas have reported every one of the first ticks.
func (b *tickBoard) complete(replicas int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.order) < wantTicks {
		return false
	}
	for _, instant := range b.order[:wantTicks] {
		if b.ticks[instant].reports < replicas {
			return false
		}
	}
	return true
}

// figures returns how often a replica was gated in the first ticks and how many records
// could not be queued, and what does not add up: a tick that was won more than once.
func (b *tickBoard) figures() (gated int, failed int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for instant, state := range b.ticks {
		if state.decided > 1 {
			err = fmt.Errorf("tick %s was won by %d replicas", instant.Format(time.TimeOnly), state.decided)
		}
	}
	for _, instant := range b.order[:min(wantTicks, len(b.order))] {
		gated += b.ticks[instant].gated
	}
	return gated, b.failed, err
}
