package cronfx

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

func mustTime(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func mustSchedule(t *testing.T, spec, zone string) schedule {
	t.Helper()
	s, err := parseSchedule(spec, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The golden table of daylight saving: robfig/cron PR#541 (a 2 AM job skipped), and
// what both robfig/cron and its maintained fork do: New York's 01:30 twice, Lord
// Howe's and São Paulo's gaps skipped.
func TestDaylightSaving(t *testing.T) {
	for _, c := range []struct {
		promise, spec, zone, after string
		want                       []string
	}{
		{
			"New York spring: 02:30 does not exist and is run once, after the gap", "30 2 * * *", "America/New_York", "2024-03-09T12:00:00Z",
			[]string{"2024-03-10T07:00:00Z", "2024-03-11T06:30:00Z"},
		},
		{
			"New York spring: several times in the gap are one run", "*/10 2 * * *", "America/New_York", "2024-03-10T00:00:00Z",
			[]string{"2024-03-10T07:00:00Z", "2024-03-11T06:00:00Z", "2024-03-11T06:10:00Z"},
		},
		{
			"New York spring: the gap's run and that of its end are one", "0,30 2,3 * * *", "America/New_York", "2024-03-10T00:00:00Z",
			[]string{"2024-03-10T07:00:00Z", "2024-03-10T07:30:00Z", "2024-03-11T06:00:00Z"},
		},
		{
			"New York autumn: 01:30 comes twice and is run the first time", "30 1 * * *", "America/New_York", "2024-11-02T12:00:00Z",
			[]string{"2024-11-03T05:30:00Z", "2024-11-04T06:30:00Z"},
		},
		{
			"New York autumn: every second of a repeated hour is run the first time", "59 59 1 * * *", "America/New_York", "2024-11-03T05:59:58Z",
			[]string{"2024-11-03T05:59:59Z", "2024-11-04T06:59:59Z"},
		},
		{
			"New York autumn: an hourly job runs in both passes", "30 * * * *", "America/New_York", "2024-11-03T05:00:00Z",
			[]string{"2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z", "2024-11-03T07:30:00Z"},
		},
		{
			"New York spring: an hourly job goes on by the hour", "30 * * * *", "America/New_York", "2024-03-10T06:00:00Z",
			[]string{"2024-03-10T06:30:00Z", "2024-03-10T07:30:00Z"},
		},
		{
			"New York spring: @hourly too", "@hourly", "America/New_York", "2024-03-10T05:30:00Z",
			[]string{"2024-03-10T06:00:00Z", "2024-03-10T07:00:00Z", "2024-03-10T08:00:00Z"},
		},
		{
			"London spring", "30 1 * * *", "Europe/London", "2024-03-30T12:00:00Z",
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z"},
		},
		{
			"London autumn", "30 1 * * *", "Europe/London", "2024-10-26T12:00:00Z",
			[]string{"2024-10-27T00:30:00Z", "2024-10-28T01:30:00Z"},
		},
		{
			"São Paulo 2018: the missing midnight", "@daily", "America/Sao_Paulo", "2018-11-03T12:00:00Z",
			[]string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		},
		{
			"São Paulo 2018: 23:30 comes twice", "30 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00:00Z",
			[]string{"2018-02-18T01:30:00Z", "2018-02-19T02:30:00Z"},
		},
		{
			"São Paulo 2018: midnight after the repeated hour comes once", "0 0 * * *", "America/Sao_Paulo", "2018-02-17T12:00:00Z",
			[]string{"2018-02-18T03:00:00Z", "2018-02-19T03:00:00Z"},
		},
		{
			"Lord Howe: a gap of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2024-10-05T00:00:00Z",
			[]string{"2024-10-05T15:30:00Z", "2024-10-06T15:15:00Z"},
		},
		{
			"Lord Howe: a repeat of half an hour", "45 1 * * *", "Australia/Lord_Howe", "2024-04-06T00:00:00Z",
			[]string{"2024-04-06T14:45:00Z", "2024-04-07T15:15:00Z"},
		},
		{
			"Lord Howe: quarters go on through the repeat", "*/15 * * * *", "Australia/Lord_Howe", "2024-04-06T14:29:00Z",
			[]string{"2024-04-06T14:30:00Z", "2024-04-06T14:45:00Z", "2024-04-06T15:00:00Z", "2024-04-06T15:15:00Z", "2024-04-06T15:30:00Z"},
		},
		{
			"Lord Howe: the hour that the gap hides is not read by any clock", "0 * * * *", "Australia/Lord_Howe", "2024-10-05T14:00:00Z",
			[]string{"2024-10-05T14:30:00Z", "2024-10-05T16:00:00Z"},
		},
		{
			"Apia 2011: the skipped day is run once, at its end", "0 9 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z",
			[]string{"2011-12-29T19:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z", "2011-12-31T19:00:00Z"},
		},
		{
			"Apia 2011: two midnights are one instant", "0 0 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z",
			[]string{"2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		},
		{
			"Apia 2011: hours go on", "@hourly", "Pacific/Apia", "2011-12-30T08:30:00Z",
			[]string{"2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T11:00:00Z"},
		},
		{
			"Troll: a gap of two hours", "30 1,2 * * *", "Antarctica/Troll", "2024-03-30T12:00:00Z",
			[]string{"2024-03-31T01:00:00Z", "2024-03-31T23:30:00Z", "2024-04-01T00:30:00Z"},
		},
		{
			"Troll: a repeat of two hours", "30 1,2 * * *", "Antarctica/Troll", "2024-10-26T12:00:00Z",
			[]string{"2024-10-26T23:30:00Z", "2024-10-27T00:30:00Z", "2024-10-28T01:30:00Z"},
		},
	} {
		t.Run(c.promise, func(t *testing.T) {
			s := mustSchedule(t, c.spec, c.zone)
			at := mustTime(t, c.after)
			for _, want := range c.want {
				at = s.next(at)
				if !at.Equal(mustTime(t, want)) {
					t.Fatalf("%s in %s: got %s, want %s", c.spec, c.zone, at.Format(time.RFC3339), want)
				}
				if at.Location() != time.UTC {
					t.Fatalf("instant %v is not in UTC", at)
				}
			}
		})
	}
}

func TestScheduleSyntax(t *testing.T) {
	for _, c := range []struct {
		promise, spec, after string
		want                 []string
	}{
		{"five fields", "*/15 9 * * *", "2026-06-01T00:00:00Z", []string{"2026-06-01T09:00:00Z", "2026-06-01T09:15:00Z"}},
		{"seconds first", "30 0 9 * * *", "2026-06-01T00:00:00Z", []string{"2026-06-01T09:00:30Z"}},
		{"every second", "* * * * * *", "2026-06-01T00:00:00.4Z", []string{"2026-06-01T00:00:01Z", "2026-06-01T00:00:02Z"}},
		{"@weekly", "@weekly", "2026-06-01T00:00:00Z", []string{"2026-06-07T00:00:00Z"}},
		// An upper-case THU is refused by the parser itself, which sees the H of a hash.
		{"upper-case names, the H of THU too", "0 9 * JUN THU", "2026-06-01T00:00:00Z", []string{"2026-06-04T09:00:00Z"}},
		{"either of two restricted days", "0 0 13 * FRI", "2026-06-01T00:00:00Z", []string{"2026-06-05T00:00:00Z", "2026-06-12T00:00:00Z", "2026-06-13T00:00:00Z"}},
		{"a restricted day alone", "0 0 13 * *", "2026-06-01T00:00:00Z", []string{"2026-06-13T00:00:00Z", "2026-07-13T00:00:00Z"}},
		{"the last day of the month", "0 0 L * *", "2026-06-01T00:00:00Z", []string{"2026-06-30T00:00:00Z"}},
		{"the third Friday", "0 0 * * FRI#3", "2026-06-01T00:00:00Z", []string{"2026-06-19T00:00:00Z"}},
		{"a leap day across a century without one", "0 0 29 2 *", "2097-01-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"@every counts from the epoch, not from the asking", "@every 90s", "2026-06-01T00:00:07Z", []string{"2026-06-01T00:01:30Z", "2026-06-01T00:03:00Z"}},
		{"@every keeps fractions of a second", "@every 1500ms", "2026-06-01T00:00:00Z", []string{"2026-06-01T00:00:01.5Z", "2026-06-01T00:00:03Z"}},
		{"@every before the epoch", "@every 7s", "1969-12-31T23:59:58.5Z", []string{"1970-01-01T00:00:00Z"}},
	} {
		t.Run(c.promise, func(t *testing.T) {
			s := mustSchedule(t, c.spec, "")
			at := mustTime(t, c.after)
			for _, want := range c.want {
				if at = s.next(at); !at.Equal(mustTime(t, want)) {
					t.Fatalf("%s: got %s, want %s", c.spec, at.Format(time.RFC3339Nano), want)
				}
			}
		})
	}
}

func TestScheduleRefusesWhatItCannotKeep(t *testing.T) {
	for _, c := range []struct{ spec, zone, names string }{
		{"", "", "Schedule"},
		{"* * * *", "", "Schedule"},
		{"61 * * * *", "", "Schedule"},
		{", * * * *", "", "Schedule"},
		{"0 0 * * ,", "", "Schedule"},
		{"0 0 30 2 *", "", "Schedule"}, // never comes
		{"@every 0s", "", "Schedule"},
		{"@every 1us", "", "Schedule"},
		{"@every -5s", "", "Schedule"},
		{"@every soon", "", "Schedule"},
		{"@fortnightly", "", "Schedule"},
		{"TZ=Europe/Paris 0 9 * * *", "", "Schedule"},
		{"CRON_TZ=Europe/Paris 0 9 * * *", "", "Schedule"},
		{"0 9 * * *", "Europe/Atlantis", "TimeZone"},
		{"0 9 * * *", "Local", "TimeZone"},
		{"0 9 * * *", "../etc/passwd", "TimeZone"},
	} {
		_, err := parseSchedule(c.spec, c.zone)
		var argument *semantic.ArgumentError
		if !errors.As(err, &argument) || argument.Argument != c.names {
			t.Errorf("%q in %q: got %v, want an argument error about %s", c.spec, c.zone, err, c.names)
		}
	}
}

var everyZone = []string{"UTC", "America/New_York", "Europe/London", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Antarctica/Troll", "Africa/Casablanca", "Asia/Kathmandu"}

// Whenever a replica asks, it gets the same instants: quartz#463 begins with two
// replicas that compute different ones.
func TestEveryReplicaComputesTheSameInstants(t *testing.T) {
	specs := []string{"*/7 * * * *", "30 1,2 * * *", "0 0 * * *", "13 2 * * 0", "@every 11m", "0 9 L * *", "*/20 */3 1,15 * *"}
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, zone := range everyZone {
		for _, spec := range specs {
			s := mustSchedule(t, spec, zone)
			for range 60 {
				from := time.Date(2009, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rng.Int64N(int64(16 * 365 * 24 * time.Hour))))
				a := s.next(from)
				b := s.next(a)
				if !a.After(from) || !b.After(a) {
					t.Fatalf("seed %d: %s in %s after %v: %v, %v do not grow", seed, spec, zone, from, a, b)
				}
				between := a.Add(time.Duration(rng.Int64N(int64(b.Sub(a)))))
				if c := s.next(between); !c.Equal(b) {
					t.Fatalf("seed %d: %s in %s: after %v comes %v, but asked at %v it is %v", seed, spec, zone, a, b, between, c)
				}
			}
		}
	}
}

func TestADailyJobRunsOncePerCalendarDay(t *testing.T) {
	for _, zone := range everyZone {
		for _, spec := range []string{"0 0 * * *", "30 1 * * *", "30 2 * * *", "15 2 * * *", "59 23 * * *"} {
			s := mustSchedule(t, spec, zone)
			loc, _ := loadZone(zone)
			from, to := time.Date(2010, 1, 1, 0, 0, 0, 0, loc), time.Date(2013, 1, 1, 0, 0, 0, 0, loc)
			days := 1096
			if zone == "Pacific/Apia" && spec == "0 0 * * *" {
				days-- // the skipped day ends at the next one's midnight
			}
			got := 0
			for at := s.next(from.Add(-1)); at.Before(to); at = s.next(at) {
				got++
			}
			if got != days {
				t.Errorf("%s in %s: %d runs in 3 years, want %d", spec, zone, got, days)
			}
		}
	}
}

// A schedule with a wildcard hour, against the definition: step through the minutes.
func TestAbsoluteScheduleMatchesTheClockOnTheWall(t *testing.T) {
	for _, zone := range everyZone {
		loc, _ := loadZone(zone)
		s := mustSchedule(t, "5-59/25 * * * 0-5", zone) // not on Saturdays
		for _, start := range []string{"2024-03-09T12:00:00Z", "2024-03-30T12:00:00Z", "2024-04-06T06:00:00Z", "2024-10-05T06:00:00Z", "2024-10-26T12:00:00Z", "2024-11-02T12:00:00Z", "2011-12-29T12:00:00Z", "2018-02-17T12:00:00Z"} {
			begin := mustTime(t, start)
			next := s.next(begin)
			for at := begin.Add(time.Minute); at.Before(begin.Add(48 * time.Hour)); at = at.Add(time.Minute) {
				wall := at.In(loc)
				match := wall.Weekday() != time.Saturday && (wall.Minute() == 5 || wall.Minute() == 30 || wall.Minute() == 55)
				if match != next.Equal(at) {
					t.Fatalf("%s: at %v (%v): due is %v, next is %v", zone, at, wall, match, next)
				}
				if match {
					next = s.next(at)
				}
			}
		}
	}
}

func FuzzSchedule(f *testing.F) {
	for _, spec := range []string{"*/5 * * * *", "0 0 29 2 *", "@every 90s", "0 9 L * MON#2", "1-59/7 22-2 * * *", "THU"} {
		f.Add(spec, "America/New_York", int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, spec, zone string, unix int64) {
		if unix < -2_000_000_000 || unix > 4_000_000_000 || strings.Contains(zone, "..") {
			return
		}
		s, err := parseSchedule(spec, zone)
		if err != nil {
			if !errors.Is(err, semantic.ErrInvalidArgument) {
				t.Fatalf("%q in %q: %v", spec, zone, err)
			}
			return
		}
		at := time.Unix(unix, 0)
		if next := s.next(at); !next.IsZero() && !next.After(at) {
			t.Fatalf("%q in %q: next of %v is %v", spec, zone, at, next)
		}
	})
}
