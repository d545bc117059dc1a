package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"

	"github.com/awslabs/goformation/v7/schema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/wrkbelt/coord/observability/internal/render"
)

const (
	metricFilter = "AWS::Logs::MetricFilter"
	metricAlarm  = "AWS::CloudWatch::Alarm"
)

// deployments are the parameters that the template is checked with.
var deployments = []map[string]string{
	{"App": "booking", "Env": "prod", "Name": "api"}, // as Copilot passes them
	{
		"App": "a", "Env": "e", "Name": "n",
		"LogGroupName": "/ecs/api", "AlarmTopicArn": "arn:aws:sns:eu-central-1:123456789012:alarms",
	},
}

// templateSchema is CloudFormation's, with no other resources than ours: its own list of
// a thousand kinds would make of each mistake a thousand messages.
var templateSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	var all struct {
		Type                 string                     `json:"type"`
		Required             []string                   `json:"required"`
		AdditionalProperties bool                       `json:"additionalProperties"`
		Properties           map[string]json.RawMessage `json:"properties"`
		Definitions          map[string]json.RawMessage `json:"definitions"`
	}
	if err := json.Unmarshal([]byte(schema.CloudformationSchema), &all); err != nil {
		return nil, err
	}
	all.Properties["Resources"] = json.RawMessage(`{
		"type": "object", "additionalProperties": false,
		"patternProperties": {"^[a-zA-Z0-9]+$": {"anyOf": [
			{"$ref": "#/definitions/` + metricFilter + `"}, {"$ref": "#/definitions/` + metricAlarm + `"}
		]}}
	}`)
	ours := map[string]any{
		"$schema": "http://json-schema.org/draft-04/schema#",
		"type":    all.Type, "required": all.Required, "additionalProperties": all.AdditionalProperties,
		"properties": all.Properties, "definitions": all.Definitions,
	}
	text, err := json.Marshal(ours)
	if err != nil {
		return nil, err
	}
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///cloudformation.json", document); err != nil {
		return nil, err
	}
	return c.Compile("mem:///cloudformation.json")
})

// AWS' limits and enumerations, which its schema does not know.
const (
	maxTemplate    = 51_200 // bytes of a template that is not read from S3
	maxFilters     = 100    // metric filters of one log group
	maxPattern     = 1024
	maxName        = 255 // of an alarm, a metric, a namespace
	maxFilterName  = 512
	maxDescription = 1024
	maxAlarmRange  = 86_400 // seconds of Period × EvaluationPeriods
)

var (
	enums = map[string][]string{
		"ComparisonOperator": {"GreaterThanOrEqualToThreshold", "GreaterThanThreshold", "LessThanThreshold", "LessThanOrEqualToThreshold"},
		"Statistic":          {"SampleCount", "Average", "Sum", "Minimum", "Maximum"},
		"TreatMissingData":   {"breaching", "notBreaching", "ignore", "missing"},
		"Unit":               {"Count", "None"},
	}
	nameForms = map[string]*regexp.Regexp{
		"LogGroupName":    regexp.MustCompile(`^[.\-_/#A-Za-z0-9]{1,512}$`),
		"FilterName":      regexp.MustCompile(`^[^:*]{1,512}$`),
		"MetricName":      regexp.MustCompile(`^[\x21-\x7e]*$`),
		"MetricNamespace": regexp.MustCompile(`^[0-9a-zA-Z.\-_/#]{1,255}$`),
		"Namespace":       regexp.MustCompile(`^[0-9a-zA-Z.\-_/#]{1,255}$`),
		"AlarmName":       regexp.MustCompile(`^[\x20-\x7e]{1,255}$`),
	}
	limits = map[string]int{
		"FilterPattern": maxPattern, "FilterName": maxFilterName, "AlarmName": maxName, "MetricName": maxName,
		"AlarmDescription": maxDescription,
	}
)

// checkCloudFormation checks the template in the form that AWS wants.
func checkCloudFormation(t Tree, r *Report) {
	text := t.Files[render.CloudFormation]
	if len(text) > maxTemplate {
		r.add("", "the template has %d bytes, want at most %d", len(text), maxTemplate)
	}
	shape, err := templateSchema()
	if err != nil {
		r.add("", "the schema: %v", err)
		return
	}
	for _, parameters := range deployments {
		resolved, err := template(text, maps.Clone(parameters))
		if err != nil {
			r.add("", "%v", err)
			continue
		}
		if err := shape.Validate(asJSON(resolved)); err != nil {
			r.add("", "%v", err)
		}
		filters := map[string]int{}
		names := map[string]bool{}
		for id, res := range resources(resolved) {
			if res.Type == metricFilter {
				filters[res.text("LogGroupName")]++
			}
			name := res.Type + " " + res.text("AlarmName") + res.text("FilterName")
			if names[name] {
				r.add("", "%s has the name of another: %s", id, name)
			}
			names[name] = true
			for _, problem := range res.faults() {
				r.add("", "%s: %s", id, problem)
			}
		}
		for group, n := range filters {
			if n > maxFilters {
				r.add("", "%d filters on %s, want at most %d", n, group, maxFilters)
			}
		}
	}
}

// asJSON makes of values what a JSON decoder would have made.
func asJSON(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	var out any
	_ = json.Unmarshal(text, &out) // what was just marshalled
	return out
}

// resource is one resource of a resolved template.
type resource struct {
	Type       string
	Properties map[string]any
}

func resources(resolved map[string]any) map[string]resource {
	all := map[string]resource{}
	list, _ := resolved["Resources"].(map[string]any)
	for id, v := range list {
		m, _ := v.(map[string]any)
		res := resource{}
		res.Type, _ = m["Type"].(string)
		res.Properties, _ = m["Properties"].(map[string]any)
		all[id] = res
	}
	return all
}

func (res resource) text(name string) string {
	s, _ := res.Properties[name].(string)
	return s
}

func (res resource) number(name string) int {
	n, _ := res.Properties[name].(int)
	return n
}

// transformation is the one metric that a filter makes.
func (res resource) transformation() resource {
	list, _ := res.Properties["MetricTransformations"].([]any)
	if len(list) != 1 {
		return resource{}
	}
	m, _ := list[0].(map[string]any)
	return resource{Properties: m}
}

// faults compares the properties with AWS' enumerations, forms and limits.
func (res resource) faults() (problems []string) {
	for _, of := range []resource{res, res.transformation()} {
		for name, v := range of.Properties {
			text, isText := v.(string)
			if allowed, ok := enums[name]; ok && !slices.Contains(allowed, text) {
				problems = append(problems, fmt.Sprintf("%s is %v, want one of %v", name, v, allowed))
			}
			if form, ok := nameForms[name]; ok && !form.MatchString(text) {
				problems = append(problems, fmt.Sprintf("%s is %v, want the form %v", name, v, form))
			}
			if limit, ok := limits[name]; ok && isText && len(text) > limit {
				problems = append(problems, fmt.Sprintf("%s has %d bytes, want at most %d", name, len(text), limit))
			}
		}
	}
	if res.Type != metricAlarm {
		return problems
	}
	period, periods, points := res.number("Period"), res.number("EvaluationPeriods"), res.number("DatapointsToAlarm")
	if period < 60 || period%60 != 0 {
		problems = append(problems, fmt.Sprintf("Period is %d, want a multiple of 60", period))
	}
	if period*periods > maxAlarmRange || points < 1 || points > periods {
		problems = append(problems, fmt.Sprintf("%d of %d periods of %d s: want at most a day, and no more points than periods", points, periods, period))
	}
	return problems
}
