package cronfx

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"go.uber.org/fx"
)

// group is the fx value group that jobs enter by.
const group = `group:"coord.jobs"`

// Jobs collects every definition given with [Provide]. The module that provides
// [*Runner] takes it as a parameter.
type Jobs struct {
	fx.In

	Definitions []Definition `group:"coord.jobs"`
}

// Provide adds one job. constructor is a function with any injected parameters that
// returns a [Job] or a [FanoutJob], and optionally an error. It also makes fx build,
// and so start, the [*Runner], which another module provides (coordfx.Module or
// testkit.Module). A job that is not sound fails the app's construction, before any I/O.
func Provide(constructor any) fx.Option {
	if err := checkConstructor(constructor); err != nil {
		return fx.Error(err)
	}
	return fx.Options(
		fx.Provide(fx.Annotate(constructor, fx.As(new(Definition)), fx.ResultTags(group))),
		fx.Invoke(func(*Runner) {}),
	)
}

func checkConstructor(constructor any) error {
	t := reflect.TypeOf(constructor)
	wrong := fmt.Errorf("cronfx.Provide: got %T, want a function that returns a cronfx.Job or a cronfx.FanoutJob, and optionally an error", constructor)
	if t == nil || t.Kind() != reflect.Func || t.NumOut() < 1 || t.NumOut() > 2 {
		return wrong
	}
	if out := t.Out(0); out != reflect.TypeFor[Job]() && out != reflect.TypeFor[FanoutJob]() {
		return wrong
	}
	if t.NumOut() == 2 && t.Out(1) != reflect.TypeFor[error]() {
		return wrong
	}
	return nil
}

// Manage ties r to the app's lifecycle: it starts with the app, at once and not under
// the start context's deadline, and stops within the stop context's. Of that it leaves
// a quarter, at most two seconds, to the hooks after it, which close what the runs use.
// For the module that provides [*Runner]; call it in the constructor, after the
// services that r uses have appended their own hooks, so that they stop after it.
func Manage(lc fx.Lifecycle, r *Runner) {
	lc.Append(fx.Hook{OnStart: r.Start, OnStop: func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, left-min(left/4, 2*time.Second))
			defer cancel()
		}
		return r.Stop(ctx)
	}})
}
