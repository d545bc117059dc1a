package fxreplace

import (
	"example.com/app/shared"
	"go.uber.org/fx"
)

var Module = fx.Replace(shared.Store{}) // want "fx"
