package coordfx_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
)

// What fx does with private values is pinned on a small module of the same make, because
// the real one's types cannot be named here; then the real one is attacked by reflection,
// which can do more than a service that has to spell a type.

type (
	secret struct{ of string }
	keeper struct{ secret *secret }
	thief  struct{ got *secret }
)

// model has a private value and a service made of it.
func model(made *int) fx.Option {
	return fx.Module("model",
		fx.Provide(func() *secret { *made++; return &secret{of: "the module"} }, fx.Private),
		fx.Provide(func(s *secret) *keeper { return &keeper{s} }),
	)
}

// quiet builds an app without its log.
func quiet(options ...fx.Option) error {
	return fx.New(append(options, fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }))...).Err()
}

func failsWith(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("err = %v, want one with %q", err, text)
	}
}

func TestWhatFxDoesWithPrivateValues(t *testing.T) {
	made := 0
	var k *keeper
	use := fx.Populate(&k)

	t.Run("the root cannot ask for one", func(t *testing.T) {
		failsWith(t, quiet(model(&made), fx.Invoke(func(*secret) {})), "missing type")
		failsWith(t, fx.ValidateApp(model(&made), fx.Invoke(func(*secret) {}), fx.NopLogger), "missing type")
		failsWith(t, quiet(model(&made), fx.Module("sibling", fx.Invoke(func(*secret) {}))), "missing type")
	})
	t.Run("an optional field of the root is nil, without an error", func(t *testing.T) {
		got := &secret{}
		err := quiet(model(&made), use, fx.Invoke(func(p struct {
			fx.In
			Secret *secret `optional:"true"`
		}) {
			got = p.Secret
		}))
		if err != nil || got != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
	t.Run("Replace at the root swaps it silently: so nobody may be able to name the type", func(t *testing.T) {
		if err := quiet(model(&made), use, fx.Replace(&secret{of: "the root"})); err != nil || k.secret.of != "the root" {
			t.Errorf("the keeper has the secret of %v, %v", k, err)
		}
	})
	t.Run("Decorate at the root swaps it too, and is not shown the real one", func(t *testing.T) {
		if err := quiet(model(&made), use, fx.Decorate(func() *secret { return &secret{of: "the root"} })); err != nil || k.secret.of != "the root" {
			t.Errorf("the keeper has the secret of %v, %v", k, err)
		}
		var seen *secret
		err := quiet(model(&made), use, fx.Decorate(func(s *secret) *secret { seen = s; return s }))
		if failsWith(t, err, "missing type"); seen != nil {
			t.Errorf("the decorator was shown the secret of %s", seen.of)
		}
	})
	t.Run("a decorator of a sibling module is ignored", func(t *testing.T) {
		err := quiet(model(&made), fx.Module("sibling", fx.Replace(&secret{of: "the sibling"})), use)
		if err != nil || k.secret.of != "the module" {
			t.Errorf("the keeper has the secret of %v, %v", k, err)
		}
	})
	t.Run("an option inside the module sees it: so no option of a service may be spliced in", func(t *testing.T) {
		var got thief
		err := quiet(fx.Module("outer", model(&made), fx.Provide(func() *secret { return &secret{of: "outer"} }, fx.Private), fx.Invoke(func(s *secret) { got.got = s })))
		if err != nil || got.got == nil {
			t.Errorf("got %v, %v", got.got, err)
		}
	})
	t.Run("included twice, a module with an output is refused", func(t *testing.T) {
		made = 0
		failsWith(t, quiet(model(&made), model(&made), use), "already provided")
		if made != 0 {
			t.Errorf("%d secrets were made", made)
		}
	})
}

func TestFxIsSupported(t *testing.T) {
	// go.mod asks for the lowest supported fx, which is what tests run with: 1.24.0,
	// the latest when this was written. Before 1.22.0 Supply ignored Private (fx#1206).
	major, rest, _ := strings.Cut(fx.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	if major != "1" || len(minor) < 2 || minor < "24" {
		t.Errorf("fx %s is not supported, 1.24.0 or later is", fx.Version)
	}
}

// privateTypes are the module's private types, found by reflection: no program outside
// redismodule can name them.
func privateTypes(t *testing.T) []reflect.Type {
	t.Helper()
	var found []reflect.Type
	var walk func(reflect.Type)
	walk = func(s reflect.Type) {
		for f := range s.Fields() {
			p := f.Type
			if p.Kind() != reflect.Pointer || p.Elem().Kind() != reflect.Struct || slices.Contains(found, p) ||
				!strings.HasPrefix(p.Elem().PkgPath(), "github.com/wrkbelt/coord/redismodule") {
				continue
			}
			found = append(found, p)
			walk(p.Elem())
		}
	}
	walk(reflect.TypeFor[redismodule.Services]())

	var names, private []string
	for _, p := range found {
		names = append(names, p.String())
	}
	for _, e := range events(t) {
		if p, ok := e.(*fxevent.Provided); ok && p.Private && p.ModuleName == "redis" {
			for _, name := range p.OutputTypeNames {
				if strings.HasPrefix(name, "*") {
					private = append(private, name)
				}
			}
		}
	}
	if len(private) < 4 {
		t.Fatalf("private types of the module: %v", private)
	}
	for _, name := range private {
		if !slices.Contains(names, name) {
			t.Errorf("the private %s was not found, so it is not tried", name)
		}
	}
	return slices.DeleteFunc(found, func(p reflect.Type) bool { return !slices.Contains(private, p.String()) })
}

// function makes a function with one parameter, for fx to call.
func function(in []reflect.Type, out []reflect.Type, body func([]reflect.Value) []reflect.Value) any {
	return reflect.MakeFunc(reflect.FuncOf(in, out, false), body).Interface()
}

func TestTheRawConnectionStaysOutOfReach(t *testing.T) {
	for _, private := range privateTypes(t) {
		t.Run(private.String(), func(t *testing.T) {
			if name := private.Elem().Name(); name[0] >= 'A' && name[0] <= 'Z' && !strings.Contains(private.Elem().PkgPath(), "/internal/") {
				t.Errorf("%v can be named by anyone", private)
			}
			var stolen []reflect.Value
			steal := func(args []reflect.Value) []reflect.Value {
				stolen = append(stolen, args...)
				return nil
			}
			take := fx.Invoke(function([]reflect.Type{private}, nil, steal))
			var s services
			app := fx.Options(
				coordfx.Module, fx.Supply(config()), fx.Provide(zap.NewNop),
				fx.Populate(&s.Cache, &s.Limiter, &s.Lock, &s.Lease, &s.Broadcast),
			)
			if err := quiet(app); err != nil {
				t.Fatalf("without an attack: %v", err)
			}
			pointer := reflect.New(private)
			zero := reflect.New(private.Elem())
			optional := reflect.StructOf([]reflect.StructField{
				{Name: "In", Type: reflect.TypeFor[fx.In](), Anonymous: true},
				{Name: "Stolen", Type: private, Tag: `optional:"true"`},
			})
			group := reflect.StructOf([]reflect.StructField{
				{Name: "In", Type: reflect.TypeFor[fx.In](), Anonymous: true},
				{Name: "Stolen", Type: reflect.SliceOf(private), Tag: `group:"raw"`},
			})
			stealField := func(args []reflect.Value) []reflect.Value {
				if v := args[0].FieldByName("Stolen"); v.Kind() == reflect.Slice && v.Len() > 0 || v.Kind() == reflect.Pointer && !v.IsNil() {
					stolen = append(stolen, v)
				}
				return nil
			}
			same := func(args []reflect.Value) []reflect.Value {
				stolen = append(stolen, args...)
				return args
			}
			for _, attack := range []struct {
				name   string
				option fx.Option
				fails  string // "" where fx lets it pass, without handing anything out
				swaps  bool   // puts an empty one in place: the services may break, and do
			}{
				{"Invoke", take, "missing type", false},
				{"Invoke in a sibling module", fx.Module("sibling", take), "missing type", false},
				{"Invoke in a module named as Coord's", fx.Module("redis", take), "missing type", false},
				{"Populate", fx.Populate(pointer.Interface()), "missing type", false},
				{"a constructor", fx.Options(
					fx.Provide(function([]reflect.Type{private}, []reflect.Type{reflect.TypeFor[*thief]()}, func(args []reflect.Value) []reflect.Value {
						steal(args)
						return []reflect.Value{reflect.ValueOf(&thief{})}
					})),
					fx.Invoke(func(*thief) {}),
				), "missing type", false},
				{"an optional field", fx.Invoke(function([]reflect.Type{optional}, nil, stealField)), "", false},
				{"a group", fx.Invoke(function([]reflect.Type{group}, nil, stealField)), "", false},
				{"Decorate with the real one", fx.Decorate(function([]reflect.Type{private}, []reflect.Type{private}, same)), "missing type", false},
				{"Decorate without", fx.Decorate(function(nil, []reflect.Type{private}, func([]reflect.Value) []reflect.Value {
					return []reflect.Value{zero}
				})), "", true},
				{"Replace", fx.Replace(zero.Interface()), "", true},
				{"the module twice", fx.Options(coordfx.Module, take), "already provided", false},
			} {
				t.Run(attack.name, func(t *testing.T) {
					err := quiet(app, attack.option, fx.RecoverFromPanics())
					if attack.fails != "" {
						failsWith(t, err, attack.fails)
					} else if err != nil && !attack.swaps {
						t.Errorf("fx has learned to refuse this: %v", err)
					}
					if len(stolen) > 0 || !pointer.Elem().IsNil() {
						t.Errorf("handed out: %v, %v", stolen, pointer.Elem())
					}
				})
			}
		})
	}
}

func TestAnOptionalFieldOfAServiceIsFilled(t *testing.T) {
	events(t, fx.Invoke(func(p struct {
		fx.In
		Lock semantic.DistributedLock `optional:"true"`
		Log  semantic.IdempotencyLog  `optional:"true"`
	}) {
		if p.Lock == nil || p.Log == nil {
			t.Errorf("lock %v, log %v: an optional field must not hide the module", p.Lock, p.Log)
		}
	}))
}
