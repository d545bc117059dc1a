package verify

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/render"
)

// checkGrafana reads the dashboard with Grafana's own types, which refuse an unknown
// field, and looks for each signal's panel.
func checkGrafana(t Tree, r *Report) {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	// The strict decoder says an empty list of faults for none, and then leaves out the
	// panels: it is for the verdict, the plain one for the contents.
	//nolint:staticcheck // the classic form is what every Grafana imports; v2 needs its newest
	err := new(dashboard.Dashboard).UnmarshalJSONStrict(t.Files[render.Dashboard])
	var faults cog.BuildErrors
	if errors.As(err, &faults) && len(faults) == 0 {
		err = nil
	}
	var board dashboard.Dashboard //nolint:staticcheck // as above
	if err == nil {
		err = json.Unmarshal(t.Files[render.Dashboard], &board)
	}
	if err != nil {
		r.add("", "%v", err)
		return
	}
	if err := board.Validate(); err != nil {
		r.add("", "%v", err)
	}
	panels := map[observability.Key]bool{}
	ids := map[uint32]bool{}
	for _, p := range board.Panels {
		var id *uint32
		switch {
		case p.RowPanel != nil:
			id = &p.RowPanel.Id
		case p.Panel != nil:
			id = p.Panel.Id
			key := observability.Key(*p.Panel.Title)
			if panels[key] {
				r.add(key, "has two panels")
			}
			panels[key] = true
			if s, ok := t.entry(key); ok {
				checkPanel(s, *p.Panel, r)
			} else {
				r.add(key, "has a panel and is not in the catalog")
			}
		}
		if id == nil || ids[*id] {
			r.add("", "a panel has no id, or that of another")
			continue
		}
		ids[*id] = true
	}
	for _, key := range sortedKeys(t.Catalog) {
		if !panels[key] {
			r.add(key, "has no panel")
		}
	}
}

// checkPanel evaluates a panel's query on the cases of its signal's alarm, with the
// threshold that it draws.
func checkPanel(s observability.Signal, p dashboard.Panel, r *Report) {
	if p.Type != "timeseries" || len(p.Targets) != 1 || len(p.Links) != 1 || p.Links[0].Url == nil ||
		!strings.HasSuffix(*p.Links[0].Url, render.Runbook+"#"+s.Anchor()) {
		r.add(s.Key, "its panel is not a time series of one query with a link to the runbook")
		return
	}
	var target struct{ Expr string }
	text, err := json.Marshal(p.Targets[0])
	if err == nil {
		err = json.Unmarshal(text, &target)
	}
	if err != nil {
		r.add(s.Key, "its panel's query: %v", err)
		return
	}
	expr := strings.ReplaceAll(target.Expr, "$job", ".*")
	if key, err := selected(expr); err != nil || key != s.Key {
		r.add(s.Key, "its panel's query is on %q: %v", key, err)
		return
	}
	if s.Alarm == nil {
		if _, err := evaluate(expr, s); err != nil {
			r.add(s.Key, "its panel's query: %v", err)
		}
		return
	}
	steps := p.FieldConfig.Defaults.Thresholds.Steps
	if len(steps) != 2 || steps[1].Value == nil || int(*steps[1].Value) != s.Alarm.Threshold {
		r.add(s.Key, "its panel does not draw the threshold %d", s.Alarm.Threshold)
		return
	}
	at, err := json.Marshal(*steps[1].Value)
	if err != nil {
		r.add(s.Key, "%v", err)
		return
	}
	above, err := evaluate(expr+" >= "+string(at), s)
	if err != nil {
		r.add(s.Key, "its panel's query: %v", err)
		return
	}
	for _, c := range cases(*s.Alarm) {
		if above[c.Name] != c.Fires {
			r.add(s.Key, "its panel: %s: at the threshold = %v, want %v", c.Name, above[c.Name], c.Fires)
		}
	}
}
