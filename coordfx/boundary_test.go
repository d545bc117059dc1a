//coord:allow-raw plants the violations that the tests of the boundary must see

package coordfx_test

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
)

// redisDriver matches the packages of Redis clients and of what wraps them.
const redisDriver = `^github\.com/(redis|go-redis|valkey-io|go-redsync)/` +
	`|^gopkg\.in/redis\.` +
	`|^github\.com/(gomodule|garyburd)/redigo/` +
	`|^github\.com/mediocregopher/radix` +
	`|^github\.com/bsm/redislock/` +
	`|^github\.com/hibiken/asynq/`

// rawPackage matches the packages (with a slash behind) whose types are a way to a
// server around the contracts: Redis drivers, MongoDB's client and this module's own
// connection layer. SQS is not among them: sqsfanout.API is the declared seam by which a
// service brings its own SQS client; it is given to the module, never provided by it.
var rawPackage = regexp.MustCompile(redisDriver +
	`|^go\.mongodb\.org/mongo-driver/(v2/)?mongo/` +
	`|^github\.com/wrkbelt/coord/redismodule/internal/`)

// provided are the module's seven types, as fx names them.
var provided = []string{
	"semantic.RemoteCacheProvider", "semantic.RateLimiter", "semantic.DistributedLock",
	"semantic.ResourceLease", "semantic.BroadcastChannel", "semantic.IdempotencyLog",
	"*cronfx.Runner",
}

// services are the seven types, filled in by fx.
type services struct {
	fx.In

	Cache     semantic.RemoteCacheProvider
	Limiter   semantic.RateLimiter
	Lock      semantic.DistributedLock
	Lease     semantic.ResourceLease
	Broadcast semantic.BroadcastChannel
	Log       semantic.IdempotencyLog
	Runner    *cronfx.Runner
}

// config has every backend, none of which is there.
func config() coordfx.Config {
	c := coordfx.Config{Redis: redismodule.Config{URL: "redis://127.0.0.1:1"}}
	c.Mongo.URI = "mongodb://127.0.0.1:1/unused"
	return c
}

// events builds an app of the module and the options without starting it.
func events(t *testing.T, options ...fx.Option) []fxevent.Event {
	t.Helper()
	var spy eventLog
	app := fx.New(
		coordfx.Module, fx.Supply(config()), fx.Provide(zap.NewNop), fx.Options(options...),
		fx.WithLogger(func() fxevent.Logger { return &spy }),
	)
	if err := app.Err(); err != nil {
		t.Fatalf("the app cannot be built: %v", err)
	}
	return spy
}

type eventLog []fxevent.Event

func (l *eventLog) LogEvent(e fxevent.Event) { *l = append(*l, e) }

// graphFaults says in what modules give the graph something else than the seven types,
// each once. What the root gives is the service's own.
func graphFaults(events []fxevent.Event) []string {
	var faults []string
	count := map[string]int{}
	for _, e := range events {
		switch e := e.(type) {
		case *fxevent.Provided:
			if e.ModuleName == "" || e.Private {
				continue
			}
			for _, name := range e.OutputTypeNames {
				count[name]++
				if !slices.Contains(provided, name) {
					faults = append(faults, fmt.Sprintf("module %s provides %s (%s)", e.ModuleName, name, e.ConstructorName))
				}
			}
		case *fxevent.Supplied: // fx does not say whether it is private, so nothing is
			if e.ModuleName != "" {
				faults = append(faults, fmt.Sprintf("module %s supplies %s", e.ModuleName, e.TypeName))
			}
		case *fxevent.Replaced:
			if e.ModuleName != "" {
				faults = append(faults, fmt.Sprintf("module %s replaces %v", e.ModuleName, e.OutputTypeNames))
			}
		case *fxevent.Decorated:
			if e.ModuleName != "" {
				faults = append(faults, fmt.Sprintf("module %s decorates %v", e.ModuleName, e.OutputTypeNames))
			}
		}
	}
	for _, name := range provided {
		if count[name] != 1 {
			faults = append(faults, fmt.Sprintf("%s is provided %d times", name, count[name]))
		}
	}
	return faults
}

func TestModuleProvidesExactlySevenTypes(t *testing.T) {
	for _, fault := range graphFaults(events(t)) {
		t.Error(fault)
	}
	// The names are those of these types and of no others of the same short name.
	events(t, fx.Invoke(func(services) {}))
}

func TestAnEighthTypeTurnsTheGraphTestRed(t *testing.T) {
	newClient := func() *redis.Client { return redis.NewClient(&redis.Options{}) } // never called
	for name, c := range map[string]struct {
		planted fx.Option
		fault   string
	}{
		"a raw client":              {fx.Provide(newClient), "module planted provides *redis.Client"},
		"a client behind interface": {fx.Provide(fx.Annotate(newClient, fx.As(new(redis.Cmdable)))), "provides redis.Cmdable"},
		"a client in a group":       {fx.Provide(fx.Annotate(newClient, fx.ResultTags(`group:"clients"`))), `provides *redis.Client[group = "clients"]`},
		"a named second service":    {fx.Provide(fx.Annotate(func() semantic.RateLimiter { return nil }, fx.ResultTags(`name:"second"`))), `provides semantic.RateLimiter[name = "second"]`},
		"a harmless eighth type":    {fx.Provide(func() int { return 8 }), "module planted provides int"},
		"a supplied value":          {fx.Supply(8), "module planted supplies int"},
		"a supplied private value":  {fx.Supply(8, fx.Private), "module planted supplies int"},
		"a replaced value":          {fx.Replace(config()), "module planted replaces"},
		"a decorated value":         {fx.Decorate(func(c coordfx.Config) coordfx.Config { return c }), "module planted decorates"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := graphFaults(events(t, fx.Module("planted", c.planted)))
			if len(faults) != 1 || !strings.Contains(faults[0], c.fault) {
				t.Errorf("faults = %q, want one with %q", faults, c.fault)
			}
		})
	}
	if faults := graphFaults(nil); len(faults) != len(provided) {
		t.Errorf("faults of an empty graph = %q, want one for each missing type", faults)
	}
}

// clientLike are shapes of raw clients that a service could be asserted to.
var clientLike = []reflect.Type{
	reflect.TypeFor[redis.Cmdable](),
	reflect.TypeFor[redis.Scripter](),
	reflect.TypeFor[interface{ Process(redis.Cmder) error }](),
}

// doorNames are methods by which clients, and wrappers of clients, hand on commands or
// themselves, whatever their signature: the shapes of redigo and radix have no types of
// their own in it.
var doorNames = []string{"Do", "Send", "Receive", "Process", "Pipeline", "Pipelined", "TxPipeline", "Conn", "Client", "Unwrap", "Eval", "EvalSha"}

// doors says how a raw client can be had from a service by assertion, by a method or by
// a field.
func doors(service any) []string {
	t := reflect.TypeOf(service)
	var found []string
	if p, ok := rawIn(t, 0); ok {
		found = append(found, fmt.Sprintf("%v is of the raw %s", t, p))
	}
	for _, shape := range clientLike {
		if t.Implements(shape) {
			found = append(found, fmt.Sprintf("%v can be asserted to %v", t, shape))
		}
	}
	for m := range t.Methods() {
		if slices.Contains(doorNames, m.Name) {
			found = append(found, fmt.Sprintf("%v has the client's method %s", t, m.Name))
		}
		if p, ok := rawIn(m.Type, 0); ok {
			found = append(found, fmt.Sprintf("method %s of %v mentions the raw %s", m.Name, t, p))
		}
	}
	if t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		for f := range t.Elem().Fields() {
			if p, ok := rawIn(f.Type, 0); ok && (f.IsExported() || f.Anonymous) {
				found = append(found, fmt.Sprintf("field %s of %v is of the raw %s", f.Name, t, p))
			}
		}
	}
	return found
}

// rawIn finds a raw package in what a type is spelt with.
func rawIn(t reflect.Type, depth int) (string, bool) {
	if rawPackage.MatchString(t.PkgPath() + "/") {
		return t.String(), true
	}
	if t.PkgPath() != "" || depth > 5 {
		return "", false
	}
	var parts []reflect.Type
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		parts = append(parts, t.Elem())
	case reflect.Map:
		parts = append(parts, t.Key(), t.Elem())
	case reflect.Func:
		parts = slices.AppendSeq(slices.Collect(t.Ins()), t.Outs())
	default:
	}
	for _, p := range parts {
		if name, ok := rawIn(p, depth+1); ok {
			return name, true
		}
	}
	return "", false
}

func TestNoServiceCanBeAssertedToARawClient(t *testing.T) {
	events(t, fx.Invoke(func(s services) {
		for _, service := range []any{s.Cache, s.Limiter, s.Lock, s.Lease, s.Broadcast, s.Log, s.Runner} {
			for _, door := range doors(service) {
				t.Error(door)
			}
		}
	}))
}

// Services that would break the rule.
type (
	wrappingLock struct { // its client's methods are promoted
		semantic.DistributedLock
		*redis.Client
	}
	openLock struct {
		semantic.DistributedLock
		Raw redis.UniversalClient
	}
	generousLock struct{ semantic.DistributedLock }
	doingLock    struct{ semantic.DistributedLock }
)

func (generousLock) Commands() func() []*redis.Client      { return nil }
func (doingLock) Do(string, ...any) (reply any, err error) { return nil, nil }

func TestAServiceWithADoorTurnsTheAssertionTestRed(t *testing.T) {
	for _, c := range []struct {
		service any
		door    string
	}{
		{&redis.Client{}, "is of the raw"},
		{&wrappingLock{}, "can be asserted to redis.Cmdable"},
		{&openLock{}, "field Raw"},
		{&generousLock{}, "method Commands"},
		{&doingLock{}, "client's method Do"},
	} {
		if found := doors(c.service); !slices.ContainsFunc(found, func(d string) bool { return strings.Contains(d, c.door) }) {
			t.Errorf("doors(%T) = %q, want one with %q", c.service, found, c.door)
		}
	}
}
