package render

import (
	"bytes"
	"encoding/json"

	"github.com/wrkbelt/coord/observability"
)

type object = map[string]any

var dataSource = object{"type": "prometheus", "uid": "${datasource}"}

// dashboard has a row for each primitive, and in it a panel for each signal with the
// measure and the threshold of its alarm.
func dashboard(catalog []observability.Signal) ([]byte, error) {
	var panels []object
	row, x, y := "", 0, 0
	const width, height = 6, 6
	for i, s := range catalog {
		if p := primitive(s.Key); p != row {
			if x > 0 {
				x, y = 0, y+height
			}
			row = p
			panels = append(panels, object{
				"id": 1000 + i, "type": "row", "title": p, "collapsed": false, "panels": []object{},
				"gridPos": object{"h": 1, "w": 24, "x": 0, "y": y},
			})
			y++
		}
		panels = append(panels, panel(i+1, s, object{"h": height, "w": width, "x": x, "y": y}))
		if x += width; x == 24 {
			x, y = 0, y+height
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(object{
		"uid": "coord-signals", "title": "Coord signals", "tags": []string{"coord"},
		"description":   "Generated from the catalog of github.com/wrkbelt/coord: one panel for each signal.",
		"schemaVersion": 39, "editable": true, "timezone": "browser", "refresh": "1m",
		"time":        object{"from": "now-6h", "to": "now"},
		"annotations": object{"list": []object{}},
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus"},
			{
				"name": "job", "type": "query", "datasource": dataSource, "query": "label_values(" + Counter + ", job)",
				"multi": true, "includeAll": true, "allValue": ".*", "refresh": 2,
			},
		}},
		"panels": panels,
	})
	return out.Bytes(), err
}

func panel(id int, s observability.Signal, place object) object {
	steps := []object{{"color": "green", "value": nil}}
	lines := "off"
	watched := "No alarm: " + s.Waiver + "."
	if s.Alarm != nil {
		steps = append(steps, object{"color": "red", "value": s.Alarm.Threshold})
		lines = "line"
		watched = "Alarm: " + s.Alarm.String() + "."
	}
	return object{
		"id": id, "type": "timeseries", "title": string(s.Key), "gridPos": place, "datasource": dataSource,
		"description": s.Meaning + "\n\n" + s.Action + "\n\n" + watched,
		"links": []object{{
			"title": "Runbook", "url": runbookLink(s), "type": "link", "icon": "external link", "tooltip": "", "tags": []string{},
			"asDropdown": false, "targetBlank": true, "includeVars": false, "keepTime": false,
		}},
		"targets": []object{{
			"refId": "A", "datasource": dataSource, "legendFormat": "{{job}}",
			"expr": measure(s, `, job=~"$job"`),
		}},
		"fieldConfig": object{
			"defaults": object{
				"min": 0, "decimals": 0,
				"thresholds": object{"mode": "absolute", "steps": steps},
				"custom":     object{"thresholdsStyle": object{"mode": lines}},
			},
			"overrides": []object{},
		},
	}
}
