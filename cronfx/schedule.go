package cronfx

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // slim images have no zone files; replicas must agree on every transition

	cron "github.com/netresearch/go-cron"

	"github.com/wrkbelt/coord/semantic"
)

// schedule computes the instants of a job. Every replica computes the same ones.
type schedule interface {
	// next returns the first instant after t, in UTC, or the zero time when there is
	// none within the search limit.
	next(t time.Time) time.Time
}

// searchYears bounds the search for a next instant; 29 February of a given weekday
// can be 40 years away.
const searchYears = 50

// starBit is how the parser marks a field written as a wildcard.
const starBit = 1 << 63

// parser reads five fields, or six with seconds first, and the @ descriptors. Like
// crontab(5), a day matches when either of a restricted day of month and a restricted
// day of week does.
func parser() cron.Parser {
	return cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
		cron.Descriptor | cron.DowOrDom | cron.Extended).WithMaxSearchYears(searchYears)
}

// parseSchedule reads spec in zone ("" is UTC). Its error is an
// [*semantic.ArgumentError].
func parseSchedule(spec, zone string) (schedule, error) {
	loc, err := loadZone(zone)
	if err != nil {
		return nil, err
	}
	refuse := func(allowed string) (schedule, error) {
		return nil, &semantic.ArgumentError{Operation: opNew, Argument: "Schedule", Value: spec, Allowed: allowed}
	}
	// Lower case, because the parser takes the H of an upper-case THU for a hash.
	text := strings.ToLower(strings.TrimSpace(spec))
	if strings.HasPrefix(text, "tz=") || strings.HasPrefix(text, "cron_tz=") {
		return refuse("a schedule without a zone; set TimeZone")
	}
	if interval, ok := strings.CutPrefix(text, "@every "); ok {
		// The parser's own @every counts from whenever it is asked, which differs
		// between replicas, and cuts fractions of a second off.
		d, err := time.ParseDuration(strings.TrimSpace(interval))
		if err != nil || d < semantic.MinTTL || d > semantic.MaxTTL || d%time.Millisecond != 0 {
			return refuse("@every with whole milliseconds, " + semantic.MinTTL.String() + " to " + semantic.MaxTTL.String())
		}
		return every(d), nil
	}
	parsed, err := parser().Parse(text)
	if err != nil {
		return refuse("five fields, six with seconds first, @every or @daily and the like: " + err.Error())
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return refuse(fmt.Sprintf("a schedule of fields, not %T", parsed))
	}
	if neverMatches(fields) { // a lone comma; the search for its next instant would be long
		return refuse("at least one value in each field")
	}
	fields.Location = time.UTC
	var s schedule = civil{fields, loc}
	if fields.Hour&starBit != 0 {
		s = absolute{fields, loc}
	}
	if s.next(time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return refuse("a schedule that some day comes")
	}
	return s, nil
}

func neverMatches(f *cron.SpecSchedule) bool {
	return f.Second == 0 || f.Minute == 0 || f.Hour == 0 || f.Month == 0 ||
		f.Dom == 0 && len(f.DomConstraints) == 0 || f.Dow == 0 && len(f.DowConstraints) == 0
}

func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || loc == time.Local { // Local may differ between replicas
		return nil, &semantic.ArgumentError{Operation: opNew, Argument: "TimeZone", Value: name, Allowed: "an IANA zone such as Europe/Paris, or empty for UTC"}
	}
	return loc, nil
}

// every is @every: the multiples of an interval since 1 January 1970 UTC.
type every time.Duration

func (e every) next(t time.Time) time.Time {
	step, at := int64(time.Duration(e)/time.Millisecond), t.UnixMilli()
	n := at / step
	if at%step < 0 {
		n-- // before 1970, where division rounds up
	}
	return time.UnixMilli((n + 1) * step).UTC()
}

// absolute is a schedule whose hour is a wildcard. It follows absolute time: an
// instant is one when the wall clock then reads a matching time, so an hour that is
// repeated is worked twice and an hour that is left out not at all.
type absolute struct {
	fields *cron.SpecSchedule
	loc    *time.Location
}

func (a absolute) next(t time.Time) time.Time {
	// Between two transitions of the zone the wall clock is UTC plus an offset, and
	// the parser is only ever asked about UTC, where it has no corner cases.
	offset, end := period(t, a.loc)
	wall := t.UTC().Add(offset)
	for {
		match := a.fields.Next(wall)
		if match.IsZero() {
			return time.Time{}
		}
		instant := match.Add(-offset)
		if end.IsZero() || instant.Before(end) {
			return instant
		}
		start := end
		offset, end = period(start, a.loc)
		wall = start.UTC().Add(offset - 1) // so that start itself can match
	}
}

// civil is a schedule with given hours. It follows the wall clock: a time that the
// clock leaves out is worked once, at the first instant after the gap; a time that it
// shows twice is worked the first time only.
type civil struct {
	fields *cron.SpecSchedule
	loc    *time.Location
}

func (c civil) next(t time.Time) time.Time {
	offset, _ := period(t, c.loc)
	wall := t.UTC().Add(offset)
	for {
		wall = c.fields.Next(wall)
		if wall.IsZero() {
			return time.Time{}
		}
		// Not later than t in the second pass of a repeated span, or where several
		// times of one gap have the same instant.
		if instant := instantOf(wall, c.loc); instant.After(t) {
			return instant
		}
	}
}

// instantOf returns the first instant at which loc's wall clock reads wall (given as
// if it were UTC), or the end of the gap in which it would have.
func instantOf(wall time.Time, loc *time.Location) time.Time {
	const reach = 36 * time.Hour // no offset and no gap is larger
	for t := wall.Add(-reach); ; {
		offset, end := period(t, loc)
		instant := wall.Add(-offset)
		if end.IsZero() || instant.Before(end) {
			if instant.Before(t) {
				return t // the transition at t left it out
			}
			return instant
		}
		t = end
	}
}

// period returns the offset of loc at t, and when it ends; zero for never.
func period(t time.Time, loc *time.Location) (offset time.Duration, end time.Time) {
	local := t.In(loc)
	_, seconds := local.Zone()
	_, end = local.ZoneBounds()
	if !end.IsZero() {
		end = end.UTC()
	}
	return time.Duration(seconds) * time.Second, end
}
