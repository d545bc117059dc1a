package redismodule

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
)

// Services are the Redis-backed services of one instance with their connections, for
// programs that do not use fx. With fx, use [Module] or the coordfx package.
type Services struct {
	Cache     *CacheService
	Limiter   *RateLimiterService
	Lock      *DistributedLockService
	Lease     *ResourceLeaseService
	Broadcast *BroadcastChannelService

	core *core
	hub  *hub
	sub  *conn.AppSubscriber
}

// Open checks config and returns inert services: nothing is dialed before Start or the
// first call. signals may be nil.
func Open(config Config, signals *observability.Signals) (*Services, error) {
	settled, err := config.Settled()
	if err != nil {
		return nil, err
	}
	core, err := newCore(settled, conn.NewCommand(settled.options()), signals)
	if err != nil {
		return nil, err
	}
	s := &Services{core: core, sub: conn.NewAppSubscriber(settled.options())}
	s.hub = newAppHub(s.core, s.sub)
	s.Cache = newCacheService(s.core)
	s.Limiter = newRateLimiterService(s.core)
	s.Lock = newDistributedLockService(s.core, s.hub.subscribe)
	s.Lease = newResourceLeaseService(s.core)
	s.Broadcast = newBroadcastChannelService(s.core, s.hub)
	return s, nil
}

// Start proves that Redis answers and that the namespace has this release's key
// layout. One round trip, bounded by ctx.
func (s *Services) Start(ctx context.Context) error { return s.core.start(ctx) }

// Close ends subscriptions and waits, drains the calls in flight until ctx ends, and
// closes the connections. Afterwards every method returns [semantic.ErrClosed].
func (s *Services) Close(ctx context.Context) error {
	s.core.health.Closed()
	s.hub.health.Closed()
	s.Limiter.close()
	s.Lock.close()
	return errors.Join(
		s.Cache.close(ctx), s.Broadcast.close(ctx), s.hub.close(ctx), s.sub.Close(ctx), s.core.command.Close(ctx),
	)
}

// core is what every service of one instance shares.
type core struct {
	config  Config // settled
	id      any    // the instance id as an argument, boxed once
	keys    keyspace
	command *conn.Command
	signals *observability.Signals
	measure measures
	health  *health.Part
	clock   semantic.Clock
}

// newCore returns an error only if config's telemetry does not work.
func newCore(config Config, command *conn.Command, signals *observability.Signals) (*core, error) {
	measure, err := newMeasures(config.Telemetry)
	if err != nil {
		return nil, err
	}
	c := &core{
		config: config, id: config.InstanceID, keys: keyspace{config.Namespace}, command: command,
		signals: signals, measure: measure, clock: semantic.SystemClock{},
	}
	c.health = config.Health.Register("redis", c.checkCommand)
	return c, nil
}

// newAppHub is the hub of the application's subscriptions.
func newAppHub(c *core, sub *conn.AppSubscriber) *hub {
	h := newHub(sub.OpenFeed, c.config.PingInterval, hubEvents{
		dropped:      c.signals.SubscriptionDropped,
		resubscribed: c.signals.SubscriptionResubscribed,
	})
	h.echoes = newEchoes(c.config, c.command.Do)
	h.health = c.config.Health.Register("redis_subscriber", checkSubscriber(h, c.keys))
	h.health.Started() // it needs no start
	return h
}

// newToken returns an identity that no other call has.
func newToken() string { return rand.Text() }

// start proves that Redis answers and that the namespace has this release's layout, or
// signals that it does not. One round trip.
func (c *core) start(ctx context.Context) error {
	err := c.askLayout(ctx)
	if err != nil {
		c.signals.ConnectionUnready("command", err)
		return err
	}
	c.health.Started()
	return nil
}

// askLayout asks for the namespace's layout, and leaves this release's where there is
// none. Two releases that lay keys out differently never share one.
func (c *core) askLayout(ctx context.Context) error {
	op := conn.Op{Name: "redis.start", Key: c.config.Namespace}
	key := c.keys.key(kindLayout, "version", "")
	found, err := c.command.Do(ctx, op, "SET", key, LayoutVersion, "NX", "GET")
	switch {
	case err != nil:
		err = fmt.Errorf("redis is not ready: %w", err)
	case found != nil && found != LayoutVersion:
		err = fmt.Errorf("redis namespace %q has key layout version %v, this release has %s: give this release another Namespace or upgrade every replica", c.config.Namespace, found, LayoutVersion)
	}
	return err
}

// share is a context for one of several hooks that have to live with one deadline: it
// has part of the time that is left, so that the hooks after it are not starved.
func share(ctx context.Context, part int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(part))
}
