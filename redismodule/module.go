package redismodule

import (
	"context"

	"go.uber.org/fx"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
)

// Module provides the five Redis-backed services to an fx graph that has a [Config]
// and an *[observability.Signals]. Each is built, and its connection dialed, only when
// something injects it. The connections are private to the module and of types that
// cannot be named outside of it.
var Module = fx.Module("redis",
	fx.Provide(
		settle, provideCommand, provideSubscriber, provideCore, provideHub,
		fx.Private,
	),
	fx.Provide(
		provideCache, provideRateLimiter, provideLock, provideLease, provideBroadcast,
	),
)

// settledConfig keeps the checked config apart from the one that the user supplied.
type settledConfig Config

func settle(c Config) (settledConfig, error) {
	settled, err := c.Settled()
	return settledConfig(settled), err
}

func provideCommand(lc fx.Lifecycle, c settledConfig) *conn.Command {
	command := conn.NewCommand(Config(c).options())
	lc.Append(fx.StopHook(command.Close))
	return command
}

func provideSubscriber(lc fx.Lifecycle, c settledConfig) *conn.AppSubscriber {
	sub := conn.NewAppSubscriber(Config(c).options())
	lc.Append(fx.StopHook(inShare(sub.Close)))
	return sub
}

func provideCore(lc fx.Lifecycle, c settledConfig, command *conn.Command, signals *observability.Signals) (*core, error) {
	core, err := newCore(Config(c), command, signals)
	if err != nil {
		return nil, err
	}
	// Past its deadline fx does not roll a start back: failing before it is what closes
	// the connections.
	lc.Append(fx.StartStopHook(inShare(core.start), core.health.Closed))
	return core, nil
}

func provideHub(lc fx.Lifecycle, c *core, sub *conn.AppSubscriber) *hub {
	h := newAppHub(c, sub)
	lc.Append(fx.StopHook(inShare(h.close)))
	lc.Append(fx.StopHook(h.health.Closed))
	return h
}

func provideCache(lc fx.Lifecycle, c *core) semantic.RemoteCacheProvider {
	s := newCacheService(c)
	lc.Append(fx.StopHook(inShare(s.close)))
	return s
}

func provideRateLimiter(lc fx.Lifecycle, c *core) semantic.RateLimiter {
	s := newRateLimiterService(c)
	lc.Append(fx.StopHook(s.close))
	return s
}

func provideLock(lc fx.Lifecycle, c *core, h *hub) semantic.DistributedLock {
	s := newDistributedLockService(c, h.subscribe)
	lc.Append(fx.StopHook(s.close))
	return s
}

func provideLease(c *core) semantic.ResourceLease { return newResourceLeaseService(c) }

func provideBroadcast(lc fx.Lifecycle, c *core, h *hub) semantic.BroadcastChannel {
	s := newBroadcastChannelService(c, h)
	lc.Append(fx.StopHook(inShare(s.close)))
	return s
}

// inShare gives a hook half of the time that is left, so that a slow one does not starve
// the hooks after it, or the rollback of a start.
func inShare(hook func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := share(ctx, 2)
		defer cancel()
		return hook(ctx)
	}
}

// SocketIO provides a *[SocketIOAdapter], with two connections of its own, to an fx
// graph that has a [Config] and an *[observability.Signals]: for the factory of a
// Socket.IO Redis adapter, and for nothing else.
var SocketIO = fx.Module("redis.socketio", fx.Provide(provideSocketIO))

func provideSocketIO(lc fx.Lifecycle, c Config, signals *observability.Signals) (*SocketIOAdapter, error) {
	o, err := OpenSocketIO(c, signals)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(inShare(o.Close)))
	return o.SocketIOAdapter, nil
}
