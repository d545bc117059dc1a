// Package coordfx stands in for Coord's wiring.
package coordfx

import (
	"go.uber.org/fx"

	"github.com/wrkbelt/coord/redismodule"
)

// Config is the module's.
type Config struct{ Redis redismodule.Config }

// Module wires.
var Module = fx.Module("coordfx")
