package boundarytest

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/wrkbelt/coord/testkit/boundary/boundarytest/internal/redis"
)

// recorder is a T that keeps what it is told.
type recorder struct{ errors, logs []string }

func (r *recorder) Helper()                    {}
func (r *recorder) Logf(f string, args ...any) { r.logs = append(r.logs, fmt.Sprintf(f, args...)) }
func (r *recorder) Errorf(f string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(f, args...))
}

// said checks that the one error has a text, or that there is none.
func (r *recorder) said(t *testing.T, want string) {
	t.Helper()
	switch {
	case want == "" && len(r.errors) > 0:
		t.Errorf("errors = %q, want none", r.errors)
	case want != "" && (len(r.errors) != 1 || !strings.Contains(r.errors[0], want)):
		t.Errorf("errors = %q, want one with %q", r.errors, want)
	}
}

type service struct{}

func TestGraphSeesWhoHandsOutARawClient(t *testing.T) {
	type pinger interface{ Get(string) string }
	type wrapper struct{ client *redis.Client }
	own := fx.Provide(func() *service { return &service{} })
	for name, c := range map[string]struct {
		option fx.Option
		want   string
	}{
		"nothing raw":                {fx.Supply(42), ""},
		"the app":                    {fx.Provide(redis.NewClient), "the app provides *redis.Client by github.com/"},
		"a module":                   {fx.Module("platform", fx.Provide(redis.NewClient)), "module platform provides *redis.Client"},
		"a module within":            {fx.Module("platform", fx.Module("store", fx.Provide(redis.NewClient))), "module store provides"},
		"a module named as Coord's":  {fx.Module("coordfx", fx.Provide(redis.NewClient, fx.Private)), "module coordfx provides"},
		"a private provider":         {fx.Module("platform", fx.Provide(redis.NewClient, fx.Private)), "module platform provides"},
		"an interface of the client": {fx.Provide(fx.Annotate(redis.NewClient, fx.As(new(redis.Cmdable)))), "provides redis.Cmdable"},
		"a named value":              {fx.Provide(fx.Annotate(redis.NewClient, fx.ResultTags(`name:"sessions"`))), `provides *redis.Client[name = "sessions"]`},
		"a group":                    {fx.Provide(fx.Annotate(redis.NewClient, fx.ResultTags(`group:"pools"`))), `provides *redis.Client[group = "pools"]`},
		"a provider of providers":    {fx.Provide(func() func() map[string]*redis.Client { return nil }), "provides func() map[string]*redis.Client"},
		"the second of two outputs":  {fx.Provide(func() (int, *redis.Client) { return 0, nil }), "provides *redis.Client"},
		"a supplied value":           {fx.Supply(redis.NewClient()), "the app supplies *redis.Client"},
		"a value supplied privately": {fx.Module("platform", fx.Supply(redis.NewClient(), fx.Private)), "module platform supplies *redis.Client"},
		"a replaced value":           {fx.Replace(redis.NewClient()), "the app replaces *redis.Client"},
		"a decorator":                {fx.Decorate(func(c *redis.Client) *redis.Client { return c }), "the app decorates *redis.Client"},
		"a decorator in a module":    {fx.Module("platform", fx.Decorate(func() redis.Cmdable { return nil })), "module platform decorates redis.Cmdable"},

		// What a name does not show: Run reports these in the code that makes them.
		"hidden behind an interface": {fx.Provide(fx.Annotate(redis.NewClient, fx.As(new(pinger)))), ""},
		"hidden in a struct":         {fx.Provide(func() wrapper { return wrapper{redis.NewClient()} }), ""},
		"hidden as any":              {fx.Provide(func() any { return redis.NewClient() }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			Graph(r, c.option, own)
			r.said(t, c.want)
		})
	}
}

func TestGraphPassesWhatCoordKeepsToItself(t *testing.T) {
	coord := &fxevent.Provided{
		ConstructorName: "github.com/wrkbelt/coord/redismodule.provideClient()", OutputTypeNames: []string{"*redis.Client"},
		ModuleName: "redis", Private: true, ModuleTrace: []string{"github.com/wrkbelt/coord/redismodule.init (module.go:1)"},
	}
	var s GraphSettings
	if fault := s.fault(coord); fault != "" {
		t.Errorf("a private connection of Coord is reported: %s", fault)
	}
	for name, change := range map[string]func(*fxevent.Provided){
		"public":                 func(e *fxevent.Provided) { e.Private = false },
		"asked for by the app":   func(e *fxevent.Provided) { e.ModuleTrace = []string{"example.com/app.main (main.go:1)"} },
		"made by the app":        func(e *fxevent.Provided) { e.ConstructorName = "example.com/app.newClient()" },
		"without a trace":        func(e *fxevent.Provided) { e.ModuleTrace = nil },
		"of a look-alike module": func(e *fxevent.Provided) { e.ModuleTrace = []string{"github.com/wrkbelt/coord/redismodulex.init"} },
	} {
		e := *coord
		change(&e)
		if s.fault(&e) == "" {
			t.Errorf("%s: passes", name)
		}
	}
	// The path of a constructor tells more than the name of its type.
	library := &fxevent.Provided{ConstructorName: "github.com/go-redis/cache/v9.New()", OutputTypeNames: []string{"*cache.Cache"}}
	if s.fault(library) == "" {
		t.Error("a constructor of a raw package passes")
	}
}

func TestGraphSettings(t *testing.T) {
	r := &recorder{}
	GraphWith(r, GraphSettings{NotRaw: []string{"*redis.Client"}}, fx.Provide(redis.NewClient))
	r.said(t, "")
	r = &recorder{}
	GraphWith(r, GraphSettings{RawNames: []string{"boundarytest"}}, fx.Provide(func() *service { return nil }))
	r.said(t, "provides *boundarytest.service")
}

func TestGraphDoesNotPassWhatItCannotJudge(t *testing.T) {
	r := &recorder{}
	Graph(r, fx.Invoke(func(*service) {}))
	r.said(t, "cannot be built")
	r = &recorder{}
	Graph(r)
	r.said(t, "nothing is provided")
	r = &recorder{} // an app's own logger must not take the events away
	Graph(r, fx.NopLogger, fx.Provide(redis.NewClient))
	r.said(t, "provides *redis.Client")
}

func TestUnreachableProbes(t *testing.T) {
	own := fx.Provide(func() *service { return &service{} })
	r := &recorder{}
	Unreachable[*redis.Client](r, own)
	r.said(t, "")
	r = &recorder{}
	Unreachable[*redis.Client](r, own, fx.Module("private", fx.Provide(redis.NewClient, fx.Private)))
	r.said(t, "")
	r = &recorder{}
	Unreachable[*redis.Client](r, own, fx.Module("public", fx.Provide(redis.NewClient)))
	r.said(t, "hands out *redis.Client")
	r = &recorder{}
	Unreachable[*redis.Client](r, fx.Provide(func(*service) *redis.Client { return nil }))
	r.said(t, "") // what cannot be built cannot be handed out
	r = &recorder{}
	Unreachable[*redis.Client](r, fx.Invoke(func(*service) {}))
	r.said(t, "not valid")
}
