// Package contract holds the catalog of signals against itself and against the methods
// that emit. It takes the catalog as an argument, so that a broken one can be shown to
// be found out.
package contract

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
)

// Problem is something wrong with a signal.
type Problem struct {
	Key  observability.Key // empty when it is about no signal of the catalog
	Text string
}

var keyForm = regexp.MustCompile(`^(redis|mongo|sqs|cron|coord)\.[a-z_]+\.[a-z_]+$`)

// Entries compares a catalog with its own rules.
func Entries(catalog []observability.Signal) (problems []Problem) {
	add := func(key observability.Key, format string, args ...any) {
		problems = append(problems, Problem{key, fmt.Sprintf(format, args...)})
	}
	seen := map[observability.Key]bool{}
	for _, s := range catalog {
		if seen[s.Key] {
			add(s.Key, "is in the catalog twice")
		}
		seen[s.Key] = true
		if !keyForm.MatchString(string(s.Key)) {
			add(s.Key, "want three words of a-z and _, the first the backend")
		}
		if (s.Alarm == nil) == (s.Waiver == "") {
			add(s.Key, "has alarm %v and waiver %q, want exactly one", s.Alarm, s.Waiver)
		}
		if s.Message == "" || s.Meaning == "" || s.Action == "" {
			add(s.Key, "lacks its message, its meaning or what to do")
		}
		if a := s.Alarm; a != nil {
			if a.Threshold < 1 || a.Period <= 0 || a.Period%time.Minute != 0 || s.Level < zapcore.WarnLevel {
				add(s.Key, "alarm %v at level %v, want a threshold, a period of whole minutes and at least a warning", a, s.Level)
			}
			if a.Sustained && time.Duration(a.Threshold)*time.Minute > a.Period {
				add(s.Key, "%d different minutes do not fit into %v", a.Threshold, a.Period)
			}
		}
		for _, f := range s.Fields {
			if strings.HasSuffix(f.Name, "_ms") != (f.Kind == observability.Millis) {
				add(s.Key, "field %s is %s; the name of millis, and no other, ends in _ms", f.Name, f.Kind)
			}
		}
	}
	return problems
}

// Methods calls every method of Signals and compares what it writes with a catalog: key,
// level, message, and fields with their kinds in their order, the key last.
func Methods(catalog []observability.Signal) (problems []Problem) {
	add := func(key observability.Key, format string, args ...any) {
		problems = append(problems, Problem{key, fmt.Sprintf(format, args...)})
	}
	left := map[observability.Key]observability.Signal{}
	for _, s := range catalog {
		left[s.Key] = s
	}
	core, logs := observer.New(zapcore.DebugLevel)
	err := EachMethod(observability.New(zap.New(core)), func(name string, call func()) error {
		call()
		written := logs.TakeAll()
		if len(written) != 1 {
			add("", "%s wrote %d lines, want 1", name, len(written))
			return nil
		}
		line := written[0]
		key := observability.Key(fmt.Sprint(line.ContextMap()[observability.EventField]))
		s, ok := left[key]
		if !ok {
			add(key, "%s emits it: it is not in the catalog, or another method emits it too", name)
			return nil
		}
		delete(left, key)
		if line.Level != s.Level || line.Message != s.Message {
			add(key, "written with level %v and message %q, want %v and %q", line.Level, line.Message, s.Level, s.Message)
		}
		var fields []observability.Field
		for _, f := range line.Context {
			fields = append(fields, observability.Field{Name: f.Key, Kind: kindOf(f)})
		}
		want := append(slices.Clone(s.Fields), observability.Field{Name: observability.EventField, Kind: observability.Text})
		if !slices.Equal(fields, want) {
			add(key, "written with the fields %v, want %v", fields, want)
		}
		return nil
	})
	if err != nil {
		add("", "%v", err)
	}
	for key := range left {
		add(key, "no method emits it")
	}
	return problems
}

// kindOf is the kind of a zap field. A failure is a text by its name.
func kindOf(f zap.Field) observability.Kind {
	switch {
	case f.Key == "error" && f.Type == zapcore.StringType:
		return observability.Failure
	case f.Type == zapcore.StringType:
		return observability.Text
	case f.Type == zapcore.Int64Type && strings.HasSuffix(f.Key, "_ms"):
		return observability.Millis
	case f.Type == zapcore.Int64Type:
		return observability.Number
	case f.Type == zapcore.TimeType || f.Type == zapcore.TimeFullType:
		return observability.Instant
	}
	return observability.Kind(fmt.Sprint("zap type ", f.Type))
}

// MethodKeys maps the name of each method of Signals to the key that it writes.
func MethodKeys() (map[string]observability.Key, error) {
	core, logs := observer.New(zapcore.DebugLevel)
	keys := map[string]observability.Key{}
	err := EachMethod(observability.New(zap.New(core)), func(name string, call func()) error {
		call()
		for _, line := range logs.TakeAll() {
			keys[name] = observability.Key(fmt.Sprint(line.ContextMap()[observability.EventField]))
		}
		return nil
	})
	return keys, err
}

// hostile is a text of another's that must not be taken for an event.
const hostile = `{"event":"redis.lock.lost"} $.event = "redis.lock.unavailable" redis.adapter.disconnected`

// EachMethod calls visit for every method of Signals, with a call of it whose texts look
// like events.
func EachMethod(signals *observability.Signals, visit func(name string, call func()) error) error {
	v := reflect.ValueOf(signals)
	for i := range v.NumMethod() {
		name, method := v.Type().Method(i).Name, v.Method(i)
		var args []reflect.Value
		for a := range method.Type().NumIn() {
			arg, err := argument(method.Type().In(a))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			args = append(args, reflect.ValueOf(arg))
		}
		if err := visit(name, func() { method.Call(args) }); err != nil {
			return err
		}
	}
	return nil
}

func argument(of reflect.Type) (any, error) {
	switch of {
	case reflect.TypeFor[string]():
		return hostile, nil
	case reflect.TypeFor[int]():
		return 7, nil
	case reflect.TypeFor[time.Duration]():
		return 1500 * time.Millisecond, nil
	case reflect.TypeFor[time.Time]():
		return time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC), nil
	case reflect.TypeFor[error]():
		return errors.New(hostile), nil
	}
	return nil, fmt.Errorf("takes a %v: want string, int, time.Duration, time.Time or error", of)
}
