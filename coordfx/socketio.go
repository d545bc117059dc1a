package coordfx

import (
	"go.uber.org/fx"

	"github.com/wrkbelt/coord/redismodule"
)

// SocketIO adds a *[redismodule.SocketIOAdapter] to an app that includes [Module]: what
// the factory of a Socket.IO Redis adapter needs of Redis, on two connections of its
// own and with the settings of Config.Redis. Lost links are signalled as
// redis.adapter.disconnected. Without it the module's seven types stay all that there is.
var SocketIO = fx.Module("coordfx.socketio",
	fx.Provide(provideSignals, provideIdentity, provideRedisConfig, fx.Private),
	redismodule.SocketIO,
)
