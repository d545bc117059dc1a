package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
)

// Pattern is a CloudWatch Logs filter pattern of the one form that is generated:
//
//	{ $.name = "text" }
//
// where name is a property at the top level and text holds neither quotes nor the
// wildcard *. Anything else is refused, not guessed.
type Pattern struct{ Name, Text string }

var patternForm = regexp.MustCompile(`^\{ \$\.([A-Za-z_][A-Za-z0-9_]*) = "([^"*\\]+)" \}$`)

// ParsePattern reads a pattern of that form.
func ParsePattern(s string) (Pattern, error) {
	m := patternForm.FindStringSubmatch(s)
	if m == nil {
		return Pattern{}, fmt.Errorf(`pattern %q: want the form { $.name = "text" }`, s)
	}
	return Pattern{m[1], m[2]}, nil
}

// Match tells whether the pattern matches a log event. A property that is there twice
// matches nothing: which one CloudWatch takes is not documented.
func (p Pattern) Match(line []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(line))
	if t, err := decoder.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	found, equal := 0, false
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return false
		}
		var value any
		if err := decoder.Decode(&value); err != nil {
			return false
		}
		if name == p.Name {
			found++
			equal = value == p.Text
		}
	}
	_, err := decoder.Token()
	return err == nil && found == 1 && equal
}
