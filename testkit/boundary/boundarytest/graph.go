package boundarytest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/wrkbelt/coord/testkit/boundary"
)

// rawNames are the packages of raw clients by the short name that fx gives to types;
// fx does not tell their import paths.
var rawNames = []string{
	"redis", "rueidis", "redigo", "valkey", "radix", "redsync", "redislock", "asynq",
	"redis_rate", "redispipe", "glide",
}

// Graph fails the test if the graph that the options make hands out a raw client by
// name: whoever provides it, at the root or in any module, must be a module of Coord
// and provide it privately, and nobody may supply, replace or decorate one. It sees
// what the code of the service does not show: the modules of other libraries.
//
// The app is built and not started; what its Invokes need is constructed. An app that
// cannot be built fails the test. fx shows types by their short names, so a package of
// the service that is called redis counts as raw: see [GraphWith]. What is provided
// under another name, as an interface or as any, is for [Run] to find.
func Graph(t T, options ...fx.Option) {
	t.Helper()
	GraphWith(t, GraphSettings{}, options...)
}

// GraphSettings change what [GraphWith] takes for raw.
type GraphSettings struct {
	boundary.Config

	RawNames []string // more package names, as in *redis.Client
	NotRaw   []string // types, as fx writes them, that are not raw in spite of their name
}

// GraphWith is [Graph] with settings.
func GraphWith(t T, s GraphSettings, options ...fx.Option) {
	t.Helper()
	var spy eventLog
	app := fx.New(fx.Options(options...), fx.WithLogger(func() fxevent.Logger { return &spy }))
	if err := app.Err(); err != nil {
		t.Errorf("boundary: the app cannot be built, its graph is not judged: %v", err)
		return
	}
	provided := 0
	for _, e := range spy {
		if p, ok := e.(*fxevent.Provided); ok && !strings.HasPrefix(p.ConstructorName, "go.uber.org/fx.") {
			provided++
		}
		if fault := s.fault(e); fault != "" {
			t.Errorf("boundary: %s", fault)
		}
	}
	if provided == 0 {
		t.Errorf("boundary: nothing is provided: the options' own fx.WithLogger or an empty list leave nothing to judge")
	}
}

type eventLog []fxevent.Event

func (l *eventLog) LogEvent(e fxevent.Event) { *l = append(*l, e) }

// fault says what is wrong with what an event tells, or "".
func (s GraphSettings) fault(e fxevent.Event) string {
	switch e := e.(type) {
	case *fxevent.Provided:
		if coordPrivate(e) {
			return ""
		}
		for _, name := range e.OutputTypeNames {
			if s.rawType(name) || s.IsRaw(packageOf(e.ConstructorName)) {
				return fmt.Sprintf("%s provides %s by %s", by(e.ModuleName), name, e.ConstructorName)
			}
		}
	case *fxevent.Supplied: // fx does not say whether it is private
		if s.rawType(e.TypeName) {
			return fmt.Sprintf("%s supplies %s", by(e.ModuleName), e.TypeName)
		}
	case *fxevent.Replaced:
		if i := slices.IndexFunc(e.OutputTypeNames, s.rawType); i >= 0 {
			return fmt.Sprintf("%s replaces %s", by(e.ModuleName), e.OutputTypeNames[i])
		}
	case *fxevent.Decorated:
		if i := slices.IndexFunc(e.OutputTypeNames, s.rawType); i >= 0 {
			return fmt.Sprintf("%s decorates %s by %s", by(e.ModuleName), e.OutputTypeNames[i], e.DecoratorName)
		}
	}
	return ""
}

func by(module string) string {
	if module == "" {
		return "the app"
	}
	return "module " + module
}

// coordPrivate tells whether Coord's own modules provide it, to themselves alone. The
// trace names the function that asked for it, which a module's name cannot forge.
func coordPrivate(e *fxevent.Provided) bool {
	return e.Private && len(e.ModuleTrace) > 0 && coords(e.ModuleTrace[0]) && coords(e.ConstructorName)
}

func coords(function string) bool {
	return strings.HasPrefix(function, "github.com/wrkbelt/coord/redismodule.") ||
		strings.HasPrefix(function, "github.com/wrkbelt/coord/coordfx.")
}

// rawType finds a raw package in a type's short name: *redis.Client, func(redis.Cmdable)
// error, map[string]*redis.Ring[group = "rings"].
func (s GraphSettings) rawType(name string) bool {
	for _, tag := range []string{"[name = ", "[group = "} {
		name, _, _ = strings.Cut(name, tag)
	}
	if slices.Contains(s.NotRaw, name) {
		return false
	}
	words := strings.FieldsFunc(name, func(r rune) bool {
		return r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	return slices.ContainsFunc(words, func(w string) bool {
		p, _, ok := strings.Cut(w, ".")
		return ok && (slices.Contains(rawNames, p) || slices.Contains(s.RawNames, p))
	})
}

// packageOf is the import path in a function's name: a.b/c/d.New() or a.b/c/d.(*T).New-fm().
func packageOf(function string) string {
	slash := strings.LastIndex(function, "/") // a receiver or closure has none behind it
	if dot := strings.Index(function[slash+1:], "."); dot >= 0 {
		return function[:slash+1+dot]
	}
	return function
}

// Unreachable fails the test if a function of the app can be given a V as a parameter.
// It is the probe for a type that [Graph] cannot tell by its name. No constructor is
// called.
func Unreachable[V any](t T, options ...fx.Option) {
	t.Helper()
	name := reflect.TypeFor[V]()
	app := fx.Options(fx.Options(options...), fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }))
	if err := fx.ValidateApp(app); err != nil {
		t.Errorf("boundary: the app is not valid, so that it proves nothing: %v", err)
		return
	}
	if err := fx.ValidateApp(app, fx.Invoke(func(V) {})); err == nil {
		t.Errorf("boundary: the app hands out %v", name)
	} else if !strings.Contains(err.Error(), "missing type") {
		t.Errorf("boundary: %v is not missing but cannot be built: %v", name, err)
	}
}
