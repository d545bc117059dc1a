package fxpopulate

import (
	"example.com/app/shared"
	"go.uber.org/fx"
)

var store shared.Store // want "variable"

var Module = fx.Populate(&store) // want "fx"
