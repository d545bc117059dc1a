package fxprovideconstructor

import (
	"example.com/app/shared"
	"go.uber.org/fx"
)

var Module = fx.Provide(shared.Get) // want "fx"
