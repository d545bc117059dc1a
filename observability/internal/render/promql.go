package render

import (
	"fmt"
	"strings"

	"github.com/wrkbelt/coord/observability"
)

// Counter is SignalCounter as Prometheus names it.
const Counter = "coord_signals_total"

// series selects a signal's counters.
func series(key observability.Key, more string) string {
	return fmt.Sprintf("%s{event=%q%s}", Counter, key, more)
}

// eventsIn counts the events of a period. For a replica younger than the period its
// counter is the count: increase would not see what a counter began with. One that was
// seen in the six hours before is not young, even if it cannot be read at times. The sum
// is rounded because increase extrapolates to the edges of the period.
func eventsIn(selected string, period string) string {
	return fmt.Sprintf("round(sum by (job, event) ((increase(%[1]s[%[2]s]) and last_over_time(%[1]s[6h] offset %[2]s)) or (last_over_time(%[1]s[%[2]s]) unless last_over_time(%[1]s[6h] offset %[2]s))))", selected, period)
}

// minutesIn counts the minutes of a period in which a counter changed.
func minutesIn(selected string, period string) string {
	return fmt.Sprintf("count_over_time(count by (job, event) (%[1]s > 0 unless %[1]s == %[1]s offset 1m)[%[2]s:1m])", selected, period)
}

// measure is what an alarm compares with its threshold.
func measure(s observability.Signal, more string) string {
	selected := series(s.Key, more)
	if s.Alarm == nil {
		return eventsIn(selected, "5m")
	}
	period := fmt.Sprintf("%dm", minutes(s.Alarm.Period))
	if s.Alarm.Sustained {
		return minutesIn(selected, period)
	}
	return eventsIn(selected, period)
}

func ruleExpr(s observability.Signal) string {
	return fmt.Sprintf("%s >= %d", measure(s, ""), s.Alarm.Threshold)
}

// primitive is the first two words of a key: redis.lock.
func primitive(k observability.Key) string {
	return string(k)[:strings.LastIndexByte(string(k), '.')]
}
