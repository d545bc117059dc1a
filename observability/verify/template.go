package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// template reads a CloudFormation template and resolves its intrinsic functions with
// parameters, as a deployment does: what is left is plain values. It knows !Ref, !Sub,
// !If, !Not and !Equals, and refuses any other tag.
func template(text []byte, parameters map[string]string) (map[string]any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document, or something that is none after the first")
	}
	d := deployment{parameters: parameters, conditions: map[string]bool{}}
	root := document.Content[0]
	if declared := child(root, "Parameters"); declared != nil {
		for i := 0; i < len(declared.Content); i += 2 {
			name := declared.Content[i].Value
			d.declared = append(d.declared, name)
			if _, set := parameters[name]; !set {
				byDefault := child(declared.Content[i+1], "Default")
				if byDefault == nil {
					return nil, fmt.Errorf("parameter %s has no value and no default", name)
				}
				d.parameters[name] = byDefault.Value
			}
		}
	}
	if conditions := child(root, "Conditions"); conditions != nil {
		for i := 0; i < len(conditions.Content); i += 2 {
			v, err := d.resolve(conditions.Content[i+1])
			if err != nil {
				return nil, err
			}
			d.conditions[conditions.Content[i].Value], _ = v.(bool)
		}
	}
	v, err := d.resolve(root)
	if err != nil {
		return nil, err
	}
	resolved, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("a template is a mapping")
	}
	delete(resolved, "Conditions") // they are resolved, and booleans now
	return resolved, nil
}

// child returns the value of a mapping's key, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

type deployment struct {
	parameters map[string]string
	declared   []string
	conditions map[string]bool
}

// noValue is what AWS::NoValue resolves to; what holds it is left out.
type noValue struct{}

var substitution = regexp.MustCompile(`\$\{([^}]*)\}`)

func (d *deployment) ref(name string) (any, error) {
	if name == "AWS::NoValue" {
		return noValue{}, nil
	}
	if v, ok := d.parameters[name]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("reference to %q: want one of the parameters %v", name, d.declared)
}

func (d *deployment) resolve(n *yaml.Node) (any, error) {
	switch n.Tag {
	case "!Ref":
		return d.ref(n.Value)
	case "!Sub":
		var failed error
		text := substitution.ReplaceAllStringFunc(n.Value, func(s string) string {
			v, err := d.ref(s[2 : len(s)-1])
			if err != nil {
				failed = err
			}
			return fmt.Sprint(v)
		})
		return text, failed
	case "!If", "!Not", "!Equals":
		return d.call(n)
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if _, twice := m[key]; twice {
				return nil, fmt.Errorf("line %d: %s is there twice", n.Content[i].Line, key)
			}
			v, err := d.resolve(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			if _, none := v.(noValue); !none {
				m[key] = v
			}
		}
		return m, nil
	case yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			v, err := d.resolve(c)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		if len(n.Tag) > 1 && n.Tag[0] == '!' && n.Tag[1] != '!' {
			return nil, fmt.Errorf("line %d: %s is not a function that is known here", n.Line, n.Tag)
		}
		var v any
		err := n.Decode(&v)
		return v, err
	}
	return nil, fmt.Errorf("line %d: no aliases in a template", n.Line)
}

// call resolves a function of a list.
func (d *deployment) call(n *yaml.Node) (any, error) {
	var args []any
	for _, c := range n.Content {
		if n.Tag == "!If" && len(args) == 0 {
			args = append(args, c.Value) // the name of a condition
			continue
		}
		v, err := d.resolve(c)
		if err != nil {
			return nil, err
		}
		args = append(args, v)
	}
	switch {
	case n.Tag == "!If" && len(args) == 3:
		yes, ok := d.conditions[fmt.Sprint(args[0])]
		if !ok {
			return nil, fmt.Errorf("line %d: no condition %v", n.Line, args[0])
		}
		if yes {
			return args[1], nil
		}
		return args[2], nil
	case n.Tag == "!Not" && len(args) == 1:
		yes, ok := args[0].(bool)
		if !ok {
			return nil, fmt.Errorf("line %d: !Not of %v", n.Line, args[0])
		}
		return !yes, nil
	case n.Tag == "!Equals" && len(args) == 2:
		return args[0] == args[1], nil
	}
	return nil, fmt.Errorf("line %d: %s of %d arguments", n.Line, n.Tag, len(args))
}
