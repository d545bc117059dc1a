package observability

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// Key names a signal. It is the value of the log field "event".
type Key string

// Signal is one catalog entry. It has exactly one of Alarm and Waiver.
//
// To add a signal: its key, its entry and the method of [Signals] that emits it, beside
// those of its primitive in one catalog_*.go; then go generate. The tests say what is
// missing.
type Signal struct {
	Key     Key
	Level   zapcore.Level
	Message string  // the line's message, in a few words; nothing matches on it
	Fields  []Field // the fields beside "event", in the order of emission
	Meaning string  // what has happened
	Action  string  // what to do about it; the runbook's text
	Alarm   *Alarm  // what watches it
	Waiver  string  // or why nothing does
}

// Field is one field of a signal's line.
type Field struct {
	Name string
	Kind Kind
}

// Kind is what a field holds.
type Kind string

// The kinds of fields.
const (
	Text    Kind = "text"    // a string
	Number  Kind = "number"  // a whole number
	Millis  Kind = "millis"  // a duration in whole milliseconds; the name ends in _ms
	Instant Kind = "instant" // a time in UTC, in the form that the logger writes times in
	Failure Kind = "failure" // an error's text, empty for none
)

// Alarm watches one signal. It fires when Threshold events are seen within Period, over
// all replicas; a sustained one when events are seen in Threshold different minutes of
// Period, so that one moment that every replica reports is not enough.
type Alarm struct {
	Threshold int
	Period    time.Duration // whole minutes
	Sustained bool
}

// String says it as the documentation does: "≥ 3 sustained in 5 min".
func (a Alarm) String() string {
	how := ""
	if a.Sustained {
		how = " sustained"
	}
	return fmt.Sprintf("≥ %d%s in %d min", a.Threshold, how, a.Period/time.Minute)
}

// The period of every alarm.
const alarmPeriod = 5 * time.Minute

func atLeast(events int) *Alarm { return &Alarm{Threshold: events, Period: alarmPeriod} }

func sustained(minutes int) *Alarm {
	return &Alarm{Threshold: minutes, Period: alarmPeriod, Sustained: true}
}

// RunbookPage is the page that is generated from the catalog, in this repository.
const RunbookPage = "docs/runbook.md"

// Anchor is the fragment of the signal's part of [RunbookPage], as GitHub makes it of
// the heading.
func (s Signal) Anchor() string { return strings.ReplaceAll(string(s.Key), ".", "") }

// Catalog returns every signal, in the order of the documentation. The keys of a release
// are part of its public contract: alarms outside this repository may match on them.
func Catalog() []Signal {
	return slices.Concat(
		socketioSignals(), broadcastSignals(), lockSignals(), leaseSignals(), cacheSignals(),
		operationSignals(), logSignals(), cronSignals(), fanoutSignals(), processSignals(),
	)
}
