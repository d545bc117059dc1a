package verify

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/render"
)

// realLines are the lines of every signal by every encoder, written once, and what
// patterns matched of them.
var realLines = sync.OnceValues(func() (*corpus, error) {
	c := &corpus{matches: map[Pattern]map[string][]line{}, written: map[string][]line{}}
	for _, e := range encoders() {
		lines, err := e.lines()
		if err != nil {
			return nil, err
		}
		c.written[e.Name] = lines
	}
	return c, nil
})

type corpus struct {
	written map[string][]line // by encoder

	sync.Mutex
	matches map[Pattern]map[string][]line
}

// matched returns the lines that a pattern matches, by encoder.
func (c *corpus) matched(p Pattern) map[string][]line {
	c.Lock()
	defer c.Unlock()
	if found, ok := c.matches[p]; ok {
		return found
	}
	found := map[string][]line{}
	for name, lines := range c.written {
		for _, l := range lines {
			if p.Match(l.Text) {
				found[name] = append(found[name], l)
			}
		}
	}
	c.matches[p] = found
	return found
}

// checkCloudWatch checks what the alarms do: each filter on real lines, and each alarm
// on counts by the minute.
func checkCloudWatch(t Tree, r *Report) {
	resolved, err := template(t.Files[render.CloudFormation], maps.Clone(deployments[1]))
	if err != nil {
		r.add("", "%v", err)
		return
	}
	all := resources(resolved)
	watched := map[observability.Key]Pattern{}
	metrics := map[string]observability.Key{} // the key that a filter's metric counts
	for id, res := range all {
		if res.Type != metricFilter {
			continue
		}
		p, err := ParsePattern(res.text("FilterPattern"))
		if err != nil {
			r.add("", "%s: %v", id, err)
			continue
		}
		key := observability.Key(p.Text)
		s, known := t.entry(key)
		_, twice := watched[key]
		switch {
		case p.Name != observability.EventField:
			r.add(key, "%s matches the field %s, want %s", id, p.Name, observability.EventField)
		case twice:
			r.add(key, "has two filters")
		case !known || s.Alarm == nil:
			r.add(key, "%s filters it, and the catalog has no alarm for it", id)
		}
		metric := res.transformation()
		if metric.text("MetricValue") != "1" || metric.number("DefaultValue") != 0 {
			r.add(key, "%s does not count by one from zero", id)
		}
		watched[key] = p
		metrics[metric.text("MetricNamespace")+" "+metric.text("MetricName")] = key
	}
	matchLines(watched, r)
	alarms := map[observability.Key]bool{}
	for id, res := range all {
		if res.Type != metricAlarm {
			continue
		}
		key, ok := metrics[res.text("Namespace")+" "+res.text("MetricName")]
		if !ok {
			r.add("", "%s watches the metric %s, which no filter makes", id, res.text("MetricName"))
			continue
		}
		if alarms[key] {
			r.add(key, "has two alarms")
		}
		alarms[key] = true
		if s, ok := t.entry(key); ok && s.Alarm != nil {
			checkAlarm(s, res, r)
		} else {
			r.add(key, "%s is an alarm on it, and the catalog has none", id)
		}
	}
	for _, s := range t.Catalog {
		if s.Alarm == nil {
			continue
		}
		if _, ok := watched[s.Key]; !ok {
			r.add(s.Key, "has an alarm in the catalog and no filter")
		}
		if !alarms[s.Key] {
			r.add(s.Key, "has an alarm in the catalog and none in the template")
		}
	}
}

// matchLines runs every filter on every line: its own signal's match, where the event is
// at the top level, and no other's.
func matchLines(watched map[observability.Key]Pattern, r *Report) {
	all, err := realLines()
	if err != nil {
		r.add("", "lines: %v", err)
		return
	}
	for key, p := range watched {
		matched := all.matched(p)
		for _, e := range encoders() {
			lines := matched[e.Name]
			for _, l := range lines {
				if l.Key != key || e.Hidden {
					r.add(key, "its filter matches a line of %s by the logger %s: %s", l.Key, e.Name, l.Text)
				}
			}
			switch n := len(lines); {
			case e.Hidden:
			case n == 0:
				r.add(key, "its filter matches none of its lines by the logger %s", e.Name)
			case e.Repeats == 1 && n != 1, n > e.Repeats:
				r.add(key, "its filter counts %d of %d events by the logger %s", n, e.Repeats, e.Name)
			}
		}
	}
}

// checkAlarm holds an alarm against its entry: what it fires on, whom it tells, and what
// it says.
func checkAlarm(s observability.Signal, alarm resource, r *Report) {
	if !strings.Contains(alarm.text("AlarmDescription"), render.Runbook+"#"+s.Anchor()) {
		r.add(s.Key, "its alarm's description does not lead to the runbook")
	}
	if alarm.text("Statistic") != "Sum" || alarm.text("ComparisonOperator") != "GreaterThanOrEqualToThreshold" ||
		alarm.text("TreatMissingData") != "notBreaching" {
		r.add(s.Key, "its alarm is not on a sum that is at least a threshold, with silence as health")
	}
	for _, actions := range []string{"AlarmActions", "OKActions"} {
		if list, _ := alarm.Properties[actions].([]any); len(list) != 1 || list[0] != deployments[1]["AlarmTopicArn"] {
			r.add(s.Key, "%s of its alarm are %v, want the topic", actions, list)
		}
	}
	for _, c := range cases(*s.Alarm) {
		if got := fires(alarm, c.perMinute()); got != c.Fires {
			r.add(s.Key, "its alarm: %s: fires = %v, want %v", c.Name, got, c.Fires)
		}
	}
}

// fires evaluates an alarm as CloudWatch does: each minute, over the periods up to it.
func fires(alarm resource, counts []int) bool {
	period := alarm.number("Period") / int(time.Minute/time.Second)
	periods, points := alarm.number("EvaluationPeriods"), alarm.number("DatapointsToAlarm")
	if period < 1 {
		return false
	}
	for end := period * periods; end <= len(counts); end++ {
		breaching := 0
		for p := range periods {
			sum := 0
			for _, n := range counts[end-(p+1)*period : end-p*period] {
				sum += n
			}
			if sum >= alarm.number("Threshold") {
				breaching++
			}
		}
		if breaching >= points {
			return true
		}
	}
	return false
}
