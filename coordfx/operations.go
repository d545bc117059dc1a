package coordfx

import (
	"cmp"

	"go.uber.org/fx"

	"github.com/wrkbelt/coord/redismodule/operationstore"
)

// Operations adds the operation coordinator to an app that includes [Module]: it
// provides [operation.Coordinator], with settings and a connection of its own, and
// needs an [operationstore.Config] in the graph. Without it the module's seven types
// stay all that there is.
//
//	fx.New(coordfx.Module, coordfx.Operations, fx.Supply(config, operationstore.Config{
//		Redis: redismodule.Config{URL: "redis://primary:6379"},
//	}))
//
// Config.Telemetry and Config.Health are its own as well, unless it has others. Settings
// out of range stop the app's construction; a server that is not proven to be
// a primary stops its start.
var Operations = fx.Module("coordfx.operations",
	fx.Provide(provideSignals, fx.Private),
	fx.Decorate(operationsConfig),
	operationstore.Module,
)

// operationsConfig is the coordinator's config with what it shares with the others.
func operationsConfig(o operationstore.Config, c Config) operationstore.Config {
	o.Telemetry, o.Health = o.Telemetry.Or(c.Telemetry), cmp.Or(o.Health, c.Health)
	return o
}
