package mongolog

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// evaluator is the part of MongoDB's filters, update operators and expressions that
// the log uses. What it does not know it refuses.
type evaluator struct{ now bson.DateTime }

func (ev evaluator) unknown(name string) error {
	return commandError{code: 168, message: "unrecognized expression " + name}
}

// matches evaluates a filter.
func (ev evaluator) matches(filter, doc bson.D) (bool, error) {
	for _, e := range filter {
		switch condition := e.Value.(type) {
		case bson.D:
			var ok bool
			switch {
			case e.Key == "$expr":
				v, err := ev.eval(condition, doc)
				if err != nil {
					return false, err
				}
				ok = v == true
			case len(condition) == 1 && condition[0].Key == "$gt":
				order, comparable := compare(field(doc, e.Key), condition[0].Value)
				ok = comparable && order > 0
			default:
				return false, ev.unknown(fmt.Sprint(e))
			}
			if !ok {
				return false, nil
			}
		default:
			if !equal(field(doc, e.Key), condition) {
				return false, nil
			}
		}
	}
	return true, nil
}

// operators applies update operators, or a replacement that keeps the _id.
func (ev evaluator) operators(update, doc bson.D) (bson.D, error) {
	if len(update) > 0 && !strings.HasPrefix(update[0].Key, "$") {
		return slices.Clone(update), nil
	}
	doc = slices.Clone(doc)
	set := func(name string, v any) {
		for i := range doc {
			if doc[i].Key == name {
				doc[i].Value = v
				return
			}
		}
		doc = append(doc, bson.E{Key: name, Value: v})
	}
	for _, e := range update {
		for _, f := range e.Value.(bson.D) {
			switch e.Key {
			case "$set":
				set(f.Key, f.Value)
			case "$currentDate":
				set(f.Key, ev.now)
			default:
				return nil, ev.unknown(e.Key)
			}
		}
	}
	return doc, nil
}

// pipeline applies an update pipeline.
func (ev evaluator) pipeline(stages bson.A, doc bson.D) (bson.D, error) {
	for _, s := range stages {
		stage := s.(bson.D)
		if stage[0].Key != "$replaceWith" {
			return nil, ev.unknown(stage[0].Key)
		}
		v, err := ev.eval(stage[0].Value, doc)
		if err != nil {
			return nil, err
		}
		after, ok := v.(bson.D)
		if !ok {
			return nil, commandError{code: 40228, message: "'newRoot' must evaluate to an object"}
		}
		doc = after
	}
	return doc, nil
}

// missing is the value of a field that is not there.
type missing struct{}

// eval evaluates an expression.
func (ev evaluator) eval(expression any, doc bson.D) (any, error) {
	switch x := expression.(type) {
	case string:
		switch {
		case x == "$$NOW":
			return ev.now, nil
		case x == "$$ROOT":
			return doc, nil
		case strings.HasPrefix(x, "$$"):
			return nil, commandError{code: 17276, message: "Use of undefined variable: " + x[2:]}
		case strings.HasPrefix(x, "$"):
			for _, e := range doc {
				if e.Key == x[1:] {
					return e.Value, nil
				}
			}
			return missing{}, nil
		}
		return x, nil
	case bson.A:
		var out bson.A
		for _, item := range x {
			v, err := ev.eval(item, doc)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case bson.D:
		if len(x) == 1 && strings.HasPrefix(x[0].Key, "$") {
			return ev.operator(x[0].Key, x[0].Value, doc)
		}
		var out bson.D
		for _, e := range x {
			v, err := ev.eval(e.Value, doc)
			if err != nil {
				return nil, err
			}
			if v != (missing{}) {
				out = append(out, bson.E{Key: e.Key, Value: v})
			}
		}
		return out, nil
	}
	return expression, nil
}

// operator evaluates one operator. All branches are evaluated, as a check.
func (ev evaluator) operator(name string, argument any, doc bson.D) (any, error) {
	if name == "$literal" {
		return argument, nil
	}
	v, err := ev.eval(argument, doc)
	if err != nil {
		return nil, err
	}
	args, _ := v.(bson.A)
	arity := map[string]int{"$eq": 2, "$ne": 2, "$lte": 2, "$gt": 2, "$in": 2, "$cond": 3, "$add": 2, "$mergeObjects": 2, "$type": 1}
	if n, ok := arity[name]; ok && len(args) != n {
		return nil, commandError{code: 16020, message: fmt.Sprintf("%s takes %d arguments", name, n)}
	}
	switch name {
	case "$eq":
		return equal(args[0], args[1]), nil
	case "$ne":
		return !equal(args[0], args[1]), nil
	case "$lte", "$gt":
		order, _ := compare(args[0], args[1]) // a missing field is less than anything
		return (order > 0) == (name == "$gt"), nil
	case "$in":
		return slices.ContainsFunc(args[1].(bson.A), func(v any) bool { return equal(v, args[0]) }), nil
	case "$and":
		return !slices.ContainsFunc(args, func(v any) bool { return v != true }), nil
	case "$or":
		return slices.Contains(args, any(true)), nil
	case "$cond":
		if args[0] == true {
			return args[1], nil
		}
		return args[2], nil
	case "$type":
		if args[0] == (missing{}) {
			return "missing", nil
		}
		return fmt.Sprintf("%T", args[0]), nil
	case "$add":
		if slices.Contains(args, any(missing{})) {
			return nil, nil
		}
		a, _ := number64(args[0])
		b, _ := number64(args[1])
		if _, date := args[0].(bson.DateTime); date {
			return bson.DateTime(a + b), nil
		}
		return int32(a + b), nil
	case "$mergeObjects":
		merged := slices.Clone(args[0].(bson.D))
		for _, e := range args[1].(bson.D) {
			if i := slices.IndexFunc(merged, func(m bson.E) bool { return m.Key == e.Key }); i >= 0 {
				merged[i] = e
			} else {
				merged = append(merged, e)
			}
		}
		return merged, nil
	}
	return nil, ev.unknown(name)
}

func number64(v any) (int64, bool) {
	switch n := v.(type) {
	case int32:
		return int64(n), true
	case int64:
		return n, true
	case bson.DateTime:
		return int64(n), true
	}
	return 0, false
}

// compare orders two numbers or two dates; what is missing or null comes first.
func compare(a, b any) (order int, comparable bool) {
	x, okX := number64(a)
	y, okY := number64(b)
	switch {
	case okX && okY:
		return cmp.Compare(x, y), true
	case okX:
		return 1, false
	}
	return -1, false
}

func equal(a, b any) bool {
	if x, ok := number64(a); ok {
		if y, ok := number64(b); ok {
			return x == y
		}
	}
	return reflect.DeepEqual(a, b)
}
