package cronfx_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func nop(context.Context, cronfx.Tick) error                 { return nil }
func scanNone(context.Context, cronfx.Tick) semantic.Records { return nil }
func noFanout() (semantic.Fanout, error)                     { return &queue{}, nil }
func sound() cronfx.Job                                      { return cronfx.Job{Name: "sound", Schedule: "@hourly", Run: nop} }
func changed(f func(j *cronfx.Job)) []cronfx.Definition {
	j := sound()
	f(&j)
	return []cronfx.Definition{j}
}
func policies(p cronfx.Policies) []cronfx.Definition {
	return changed(func(j *cronfx.Job) { j.Policies = p })
}
func fanned(f func(j *cronfx.FanoutJob)) []cronfx.Definition {
	j := cronfx.FanoutJob{Name: "fanned", Schedule: "@hourly", Scan: scanNone}
	f(&j)
	return []cronfx.Definition{j}
}

// toolkits: a setting that cannot be read stops the start (components-contrib#4600).
// There is no I/O: lock and lease here are never asked.
func TestAnUnsoundRunnerIsRefusedAndNamesTheSetting(t *testing.T) {
	errNoQueue := errors.New("setting FanoutQueueURL is missing")
	for name, c := range map[string]struct {
		change func(p *cronfx.Params)
		names  []string
	}{
		"no lock":                {func(p *cronfx.Params) { p.Lock = nil }, []string{"Lock"}},
		"no lease":               {func(p *cronfx.Params) { p.Lease = nil }, []string{"Lease"}},
		"no instance id":         {func(p *cronfx.Params) { p.InstanceID = "" }, []string{"InstanceID"}},
		"long instance id":       {func(p *cronfx.Params) { p.InstanceID = strings.Repeat("x", 201) }, []string{"InstanceID"}},
		"negative skew":          {func(p *cronfx.Params) { p.MaxSkew = -1 }, []string{"MaxSkew"}},
		"negative retention":     {func(p *cronfx.Params) { p.Retention = -1 }, []string{"Retention"}},
		"negative history":       {func(p *cronfx.Params) { p.History = -1 }, []string{"History"}},
		"nil job":                {func(p *cronfx.Params) { p.Jobs = []cronfx.Definition{nil} }, []string{"Jobs"}},
		"no name":                {func(p *cronfx.Params) { p.Jobs = changed(func(j *cronfx.Job) { j.Name = "" }) }, []string{"Name"}},
		"colon in a name":        {func(p *cronfx.Params) { p.Jobs = changed(func(j *cronfx.Job) { j.Name = "a:b" }) }, []string{"Name", "a:b"}},
		"long name":              {func(p *cronfx.Params) { p.Jobs = changed(func(j *cronfx.Job) { j.Name = strings.Repeat("x", 201) }) }, []string{"Name"}},
		"two of one name":        {func(p *cronfx.Params) { p.Jobs = []cronfx.Definition{sound(), sound()} }, []string{"sound", "no other job"}},
		"bad schedule":           {func(p *cronfx.Params) { p.Jobs = changed(func(j *cronfx.Job) { j.Schedule = "every hour" }) }, []string{"sound", "Schedule", "every hour"}},
		"a day that never comes": {func(p *cronfx.Params) { p.Jobs = changed(func(j *cronfx.Job) { j.Schedule = "0 0 30 2 *" }) }, []string{"sound", "Schedule"}},
		"unknown zone":           {func(p *cronfx.Params) { p.Jobs = changed(func(j *cronfx.Job) { j.TimeZone = "Mars/Base" }) }, []string{"sound", "TimeZone", "Mars/Base"}},
		"no function":            {func(p *cronfx.Params) { p.Jobs = changed(func(j *cronfx.Job) { j.Run = nil }) }, []string{"sound", "Run"}},
		"unknown misfire":        {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{Misfire: "LATER"}) }, []string{"sound", "Misfire", "LATER"}},
		"unknown overlap":        {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{Overlap: "QUEUE"}) }, []string{"sound", "Overlap", "QUEUE"}},
		"unknown crash":          {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{Crash: "RETRY"}) }, []string{"sound", "Crash", "RETRY"}},
		"catch-up without n":     {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{Misfire: cronfx.MisfireCatchUp}) }, []string{"CatchUp"}},
		"n without catch-up":     {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{CatchUp: 3}) }, []string{"CatchUp"}},
		"unbounded catch-up": {func(p *cronfx.Params) {
			p.Jobs = policies(cronfx.Policies{Misfire: cronfx.MisfireCatchUp, CatchUp: 101})
		}, []string{"CatchUp"}},
		"negative late window":   {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{LateWindow: -time.Second}) }, []string{"LateWindow"}},
		"lease below a second":   {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{LeaseTTL: time.Millisecond}) }, []string{"LeaseTTL"}},
		"negative jitter":        {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{Jitter: -1}) }, []string{"Jitter"}},
		"negative timeout":       {func(p *cronfx.Params) { p.Jobs = policies(cronfx.Policies{Timeout: -1}) }, []string{"Timeout"}},
		"fan-out without a scan": {func(p *cronfx.Params) { p.Jobs = fanned(func(j *cronfx.FanoutJob) { j.Scan = nil }) }, []string{"fanned", "Scan"}},
		"bad domain":             {func(p *cronfx.Params) { p.Jobs = fanned(func(j *cronfx.FanoutJob) { j.Domain = "a\nb" }) }, []string{"fanned", "Domain"}},
		"negative cooldown":      {func(p *cronfx.Params) { p.Jobs = fanned(func(j *cronfx.FanoutJob) { j.Cooldown = -1 }) }, []string{"fanned", "Cooldown"}},
		"fan-out without queue": {func(p *cronfx.Params) {
			p.Jobs, p.Fanout = fanned(func(*cronfx.FanoutJob) {}), nil
		}, []string{"fanned", "Fanout"}},
		"fan-out with a bad queue": {func(p *cronfx.Params) {
			p.Jobs = fanned(func(*cronfx.FanoutJob) {})
			p.Fanout = func() (semantic.Fanout, error) { return nil, errNoQueue }
		}, []string{"fanned", errNoQueue.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			p := cronfx.Params{
				Lock: testkit.NewDistributedLock(nil), Lease: testkit.NewResourceLease(nil),
				InstanceID: "replica", Fanout: noFanout, Jobs: []cronfx.Definition{sound()},
			}
			if _, err := cronfx.NewRunner(p); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			c.change(&p)
			_, err := cronfx.NewRunner(p)
			if err == nil || !errors.Is(err, semantic.ErrInvalidArgument) && !errors.Is(err, errNoQueue) {
				t.Fatalf("got %v, want an invalid argument", err)
			}
			for _, n := range c.names {
				if !strings.Contains(err.Error(), n) {
					t.Errorf("%q does not name %q", err, n)
				}
			}
		})
	}
}

// A service without a FanoutJob needs no queue.
func TestTheQueueIsOnlyAskedForWhenAJobNeedsIt(t *testing.T) {
	asked := 0
	p := cronfx.Params{
		Lock: testkit.NewDistributedLock(nil), Lease: testkit.NewResourceLease(nil), InstanceID: "replica",
		Fanout: func() (semantic.Fanout, error) { asked++; return &queue{}, nil },
		Jobs:   []cronfx.Definition{sound()},
	}
	if _, err := cronfx.NewRunner(p); err != nil || asked != 0 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	p.Jobs = append(p.Jobs, fanned(func(*cronfx.FanoutJob) {})...)
	if _, err := cronfx.NewRunner(p); err != nil || asked != 1 {
		t.Errorf("asked %d times, %v, want once", asked, err)
	}
}

func TestEveryFaultIsToldAtOnce(t *testing.T) {
	_, err := cronfx.NewRunner(cronfx.Params{
		Lock: testkit.NewDistributedLock(nil), Lease: testkit.NewResourceLease(nil), InstanceID: "replica",
		Jobs: []cronfx.Definition{cronfx.Job{Name: "a", Schedule: "x", Run: nop}, cronfx.Job{Name: "b", Schedule: "@hourly"}},
	})
	if err == nil || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("%v: want both jobs named", err)
	}
}
