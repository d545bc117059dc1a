package verify

import (
	"time"

	"github.com/wrkbelt/coord/observability"
)

// timeline is how long a case lasts; its alarm looks at every moment of it.
const timeline = 30 * time.Minute

// alarmCase is a course of events and whether an alarm must fire in it.
type alarmCase struct {
	Name  string
	Fires bool
	// Replicas hold the times of the events that each emits.
	Replicas [][]time.Duration
	// Born is when the replicas are read for the first time.
	Born time.Duration
	// Restart is when the replicas restart in place, their counters at zero. 0: never.
	Restart time.Duration
	// Lost are the spans in which reading the replicas fails.
	Lost [][2]time.Duration
}

// cases are the courses that an alarm is tried on: at least one that it fires in and one
// that it is silent in, one event below it.
func cases(a observability.Alarm) []alarmCase {
	const start = 12 * time.Minute
	spread := func(n int, step time.Duration) (times []time.Duration) {
		for i := range n {
			times = append(times, start+10*time.Second+time.Duration(i)*step)
		}
		return times
	}
	// What happened long ago never counts again, however the counter is read since.
	old := make([]time.Duration, 3*a.Threshold)
	for i := range old {
		old[i] = -9 * time.Minute
	}
	past := alarmCase{
		Name: "old events, failed scrapes, an outage of the rules' own server, and the end of the replicas",
		Born: -10 * time.Minute, Replicas: [][]time.Duration{old, old},
		Lost: [][2]time.Duration{{3 * time.Minute, 3*time.Minute + time.Second}, {10 * time.Minute, 17 * time.Minute}, {24 * time.Minute, timeline + time.Hour}},
	}
	if a.Sustained {
		n := a.Threshold
		burst := spread(100, 0)
		return []alarmCase{
			{Name: "events in as many minutes as the threshold", Fires: true, Replicas: [][]time.Duration{spread(n, time.Minute)}},
			{Name: "the same, each of another replica", Fires: true, Replicas: [][]time.Duration{spread(n, time.Minute)[:1], spread(n, time.Minute)[1:]}},
			{Name: "the same of new replicas", Fires: true, Replicas: [][]time.Duration{spread(n, time.Minute)}, Born: start + 10*time.Second},
			// The minute of a restart is lost to a counter.
			{Name: "one minute more, with a restart in one", Fires: true, Replicas: [][]time.Duration{spread(n+1, time.Minute)}, Restart: start + 80*time.Second},
			{Name: "no event", Replicas: [][]time.Duration{nil}},
			{Name: "one moment that many replicas report", Replicas: [][]time.Duration{burst, burst, burst, burst}},
			{Name: "one minute less than the threshold", Replicas: [][]time.Duration{spread(n-1, time.Minute)}},
			{Name: "minutes too far apart", Replicas: [][]time.Duration{spread(n, a.Period)}},
			past,
		}
	}
	step := 40 * time.Second // two scrapes see the zero after a restart between two events
	each := func(n int) (replicas [][]time.Duration) {
		for _, at := range spread(n, step) {
			replicas = append(replicas, []time.Duration{at})
		}
		return replicas
	}
	below := spread(a.Threshold-1, step)
	return []alarmCase{
		{Name: "as many events as the threshold", Fires: true, Replicas: [][]time.Duration{spread(a.Threshold, step)}},
		{Name: "the same, each of another replica", Fires: true, Replicas: each(a.Threshold)},
		{Name: "the same in one moment", Fires: true, Replicas: [][]time.Duration{spread(a.Threshold, 0)}},
		{Name: "the same of new replicas", Fires: true, Replicas: each(a.Threshold), Born: start + 10*time.Second},
		{Name: "the same across a restart", Fires: true, Replicas: [][]time.Duration{spread(a.Threshold, step)}, Restart: start + step/2},
		{Name: "no event", Replicas: [][]time.Duration{nil}},
		{Name: "one event less", Replicas: [][]time.Duration{below}},
		{Name: "one event less, in one moment of new replicas", Replicas: [][]time.Duration{spread(a.Threshold-1, 0)}, Born: start + 10*time.Second},
		{Name: "one event less in each of two periods", Replicas: [][]time.Duration{append(below, shift(below, 2*a.Period)...)}},
		past,
	}
}

func shift(times []time.Duration, by time.Duration) (later []time.Duration) {
	for _, at := range times {
		later = append(later, at+by)
	}
	return later
}

// read tells whether the replicas can be read at a time, and whether that has just ended.
func (c alarmCase) read(at time.Duration) (ok, ended bool) {
	for _, lost := range c.Lost {
		if at >= lost[0] && at < lost[1] {
			return false, at-scrape < lost[0]
		}
	}
	return true, false
}

// perMinute counts the events of all replicas, from the timeline's begin on.
func (c alarmCase) perMinute() []int {
	counts := make([]int, timeline/time.Minute)
	for _, events := range c.Replicas {
		for _, at := range events {
			if at >= 0 {
				counts[at/time.Minute]++
			}
		}
	}
	return counts
}
