package fxsupply

import (
	"example.com/app/shared"
	"go.uber.org/fx"
)

var Module = fx.Supply(shared.Get()) // want "fx"
