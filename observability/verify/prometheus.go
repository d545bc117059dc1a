package verify

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	staleness "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/render"
)

// scrape is how often the replicas of the cases are read.
const scrape = 15 * time.Second

// epoch is the time of the cases' start: a whole minute, as subqueries count.
var epoch = time.Unix(1_800_000_000, 0)

// checkPrometheus reads the rules as Prometheus does and evaluates each on its cases.
func checkPrometheus(t Tree, r *Report) {
	groups, errs := rulefmt.Parse(t.Files[render.Prometheus], false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		r.add("", "%v", err)
	}
	if len(errs) > 0 {
		return
	}
	rules := map[observability.Key]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, rule := range g.Rules {
			key, err := selected(rule.Expr)
			if err != nil {
				r.add("", "%s: %v", rule.Alert, err)
				continue
			}
			if _, twice := rules[key]; twice {
				r.add(key, "has two rules")
			}
			rules[key] = rule
			s, ok := t.entry(key)
			if !ok || s.Alarm == nil {
				r.add(key, "%s is a rule for it, and the catalog has no alarm", rule.Alert)
				continue
			}
			checkRule(s, rule, r)
		}
	}
	for _, s := range t.Catalog {
		if _, ok := rules[s.Key]; s.Alarm != nil && !ok {
			r.add(s.Key, "has an alarm in the catalog and no rule")
		}
	}
}

// selected returns the one event that every selector of an expression is on.
func selected(expr string) (observability.Key, error) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return "", err
	}
	keys := map[string]bool{}
	for _, matchers := range parser.ExtractSelectors(parsed) {
		event := ""
		for _, m := range matchers {
			switch {
			case m.Name == model.MetricNameLabel && m.Value != render.Counter:
				return "", fmt.Errorf("reads the metric %s, want %s", m.Value, render.Counter)
			case m.Name == observability.EventField && m.Type == labels.MatchEqual:
				event = m.Value
			}
		}
		keys[event] = true
	}
	if len(keys) != 1 || keys[""] {
		return "", fmt.Errorf("%q: want every selector on one event", expr)
	}
	for key := range keys {
		return observability.Key(key), nil
	}
	panic("unreachable")
}

func checkRule(s observability.Signal, rule rulefmt.Rule, r *Report) {
	if url := rule.Annotations["runbook_url"]; !strings.HasSuffix(url, render.Runbook+"#"+s.Anchor()) {
		r.add(s.Key, "the rule's runbook_url is %q", url)
	}
	if rule.For != 0 {
		r.add(s.Key, "the rule waits for %v: the catalog's period is all there is to wait", rule.For)
	}
	if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
		r.add(s.Key, "the rule lacks its severity, summary or description")
	}
	fired, err := evaluate(rule.Expr, s)
	if err != nil {
		r.add(s.Key, "the rule: %v", err)
		return
	}
	for _, c := range cases(*s.Alarm) {
		if fired[c.Name] != c.Fires {
			r.add(s.Key, "the rule: %s: fires = %v, want %v", c.Name, fired[c.Name], c.Fires)
		}
	}
	if fired[otherEvent] {
		r.add(s.Key, "the rule fires on another signal's events")
	}
}

// otherEvent is the case of another signal that is emitted without end.
const otherEvent = "another signal's events"

// evaluate returns the cases of a signal's alarm in which an expression had a result
// after any scrape. Each case is a job of its own.
func evaluate(expr string, s observability.Signal) (map[string]bool, error) {
	kind := observability.Alarm{Threshold: 1, Period: 5 * time.Minute}
	if s.Alarm != nil {
		kind = *s.Alarm
	}
	// The cases are stored once for all signals with such an alarm.
	expr = strings.ReplaceAll(expr, string(s.Key), standIn)
	worlds.Lock()
	defer worlds.Unlock()
	if fired, ok := worlds.results[evaluation{kind, expr}]; ok {
		return fired, nil
	}
	world, err := worldOf(kind)
	if err != nil {
		return nil, err
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{}),
		LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
	})
	defer engine.Close()
	query, err := engine.NewRangeQuery(context.Background(), world, nil, expr, epoch, epoch.Add(timeline), scrape)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	matrix, err := query.Exec(context.Background()).Matrix()
	if err != nil {
		return nil, err
	}
	fired := map[string]bool{}
	for _, series := range matrix {
		fired[series.Metric.Get("job")] = true
	}
	worlds.results[evaluation{kind, expr}] = fired
	return fired, nil
}

// standIn is the event of the stored cases.
const standIn = "stand.in.event"

// evaluation is an expression on the cases of an alarm.
type evaluation struct {
	of   observability.Alarm
	expr string
}

// worlds keeps the stored cases and what expressions gave on them, for the next check.
var worlds = struct {
	sync.Mutex
	stored  map[observability.Alarm]*teststorage.TestStorage
	results map[evaluation]map[string]bool
}{stored: map[observability.Alarm]*teststorage.TestStorage{}, results: map[evaluation]map[string]bool{}}

// worldOf stores the cases of an alarm as Prometheus would have scraped them.
func worldOf(a observability.Alarm) (*teststorage.TestStorage, error) {
	if w, ok := worlds.stored[a]; ok {
		return w, nil
	}
	w, err := teststorage.NewWithError()
	if err != nil {
		return nil, err
	}
	app := w.Appender(context.Background())
	put := func(c alarmCase, replica int, event string, value func(time.Duration) float64) error {
		l := labels.FromStrings(model.MetricNameLabel, render.Counter, "job", c.Name, "instance", fmt.Sprint("replica-", replica), observability.EventField, event)
		for at := c.Born; at <= timeline; at += scrape {
			v := value(at)
			if ok, ended := c.read(at); ended {
				v = math.Float64frombits(staleness.StaleNaN)
			} else if !ok {
				continue
			}
			if _, err := app.Append(0, l, epoch.Add(at).UnixMilli(), v); err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range cases(a) {
		for replica, events := range c.Replicas {
			err := put(c, replica, standIn, func(at time.Duration) float64 {
				n := 0
				for _, e := range events {
					if e <= at && (c.Restart == 0 || at < c.Restart || e >= c.Restart) {
						n++
					}
				}
				return float64(n)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	// A signal that is not this one, and this one never.
	other := alarmCase{Name: otherEvent}
	err = put(other, 0, "some.other.event", func(at time.Duration) float64 { return math.Floor(at.Seconds()) })
	if err == nil {
		err = put(other, 0, standIn, func(time.Duration) float64 { return 0 })
	}
	if err == nil {
		err = app.Commit()
	}
	if err != nil {
		return nil, err
	}
	worlds.stored[a] = w
	return w, nil
}

// Close removes what the checks have stored on disk.
func Close() error {
	worlds.Lock()
	defer worlds.Unlock()
	for a, w := range worlds.stored {
		delete(worlds.stored, a)
		if err := w.Close(); err != nil {
			return err
		}
	}
	return nil
}

// sortedKeys are the keys of a catalog.
func sortedKeys(catalog []observability.Signal) (keys []observability.Key) {
	for _, s := range catalog {
		keys = append(keys, s.Key)
	}
	slices.Sort(keys)
	return keys
}
