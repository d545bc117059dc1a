// Package fx stands in for fx: the signatures that the test data needs.
package fx

import (
	"context"

	"go.uber.org/dig"
)

type (
	In         = dig.In
	Out        = dig.Out
	Option     interface{ apply() }
	Annotation interface{ annotate() }
	Hook       struct{ OnStart, OnStop func(context.Context) error }
	Lifecycle  interface{ Append(Hook) }
	Shutdowner interface{ Shutdown() error }
	App        struct{}
)

func New(...Option) *App              { return nil }
func (*App) Run()                     {}
func Module(string, ...Option) Option { return nil }
func Options(...Option) Option        { return nil }
func Error(...error) Option           { return nil }
func Provide(...any) Option           { return nil }
func Supply(...any) Option            { return nil }
func Invoke(...any) Option            { return nil }
func Populate(...any) Option          { return nil }
func Replace(...any) Option           { return nil }
func Decorate(...any) Option          { return nil }
func Annotate(any, ...Annotation) any { return nil }
func As(...any) Annotation            { return nil }
func From(...any) Annotation          { return nil }
func ResultTags(...string) Annotation { return nil }
func ParamTags(...string) Annotation  { return nil }
func OnStart(any) Annotation          { return nil }
