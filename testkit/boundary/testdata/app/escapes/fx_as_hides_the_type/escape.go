package fxashidesthetype

import (
	"example.com/app/shared"
	"go.uber.org/fx"
)

type pinger interface{ Close() error }

var Module = fx.Provide(fx.Annotate(shared.Get, fx.As(new(pinger)))) // want "fx"
