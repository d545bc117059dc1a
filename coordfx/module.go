package coordfx

import (
	"context"
	"time"

	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
)

// Module gives an fx graph that has a [Config] and a *zap.Logger exactly seven types:
// [semantic.RemoteCacheProvider], [semantic.RateLimiter], [semantic.DistributedLock],
// [semantic.ResourceLease], [semantic.BroadcastChannel], [semantic.IdempotencyLog] and
// *[cronfx.Runner].
//
// A wrong setting stops the app at construction. A backend is dialed at start, and
// only if something injects it. On stop consumers and jobs stop first, then the
// services drain, then the connections close, each within its share of the deadline.
var Module = fx.Module("coordfx",
	fx.Provide(
		provideSignals, provideIdentity, provideRedisConfig,
		fx.Private,
	),
	redismodule.Module,
	fx.Provide(provideIdempotencyLog, provideRunner),
	fx.Invoke(Config.Validate, watchHealth, runConsumers),
)

func provideSignals(log *zap.Logger, c Config) (*observability.Signals, error) {
	if err := observability.NewKit(c.Telemetry, "coord").Err(); err != nil {
		return nil, named(err)
	}
	signals := observability.New(log, observability.WithMeterProvider(c.Telemetry.Meter))
	if observability.Sampled(log) {
		signals.LoggerSampled()
	}
	if observability.HidesEvent(log) {
		signals.LoggerHidesEvent()
	}
	return signals, nil
}

// identity is the instance id that every part of this process goes by.
type identity string

func provideIdentity(c Config) identity {
	if c.InstanceID != "" {
		return identity(c.InstanceID)
	}
	return identity(redismodule.NewInstanceID())
}

func provideRedisConfig(c Config, id identity) (redismodule.Config, error) {
	c.InstanceID = string(id)
	r := c.redis()
	_, err := r.Settled()
	return r, named(err)
}

func provideIdempotencyLog(lc fx.Lifecycle, c Config, signals *observability.Signals) (semantic.IdempotencyLog, error) {
	log, err := mongolog.New(c.mongo(), signals)
	if err != nil {
		return nil, named(err)
	}
	lc.Append(fx.StartStopHook(inTime(log.Start), log.Close))
	return log, nil
}

// inTime gives a start hook half of the time that is left: past its deadline fx does
// not roll a start back, so what fails has to fail before it.
func inTime(start func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
			defer cancel()
		}
		return start(ctx)
	}
}

// runnerParams are what the runner is made of.
type runnerParams struct {
	fx.In

	Lifecycle fx.Lifecycle
	Config    Config
	Identity  identity
	Signals   *observability.Signals
	Lock      semantic.DistributedLock
	Lease     semantic.ResourceLease
	Jobs      cronfx.Jobs
}

func provideRunner(p runnerParams) (*cronfx.Runner, error) {
	cron := p.Config.Cron
	runner, err := cronfx.NewRunner(cronfx.Params{
		Lock: p.Lock, Lease: p.Lease, Signals: p.Signals, InstanceID: string(p.Identity),
		Jobs: p.Jobs.Definitions, MaxSkew: cron.MaxSkew, Retention: cron.Retention,
		History: cron.History, OnRun: cron.OnRun, Telemetry: p.Config.Telemetry,
		Fanout: func() (semantic.Fanout, error) { return newProducer(p) },
	})
	if err != nil {
		return nil, err
	}
	cronfx.Manage(p.Lifecycle, runner)
	return runner, nil
}

// newProducer is called by the runner only when there is a fan-out job, so that a
// service without one needs no queue.
func newProducer(p runnerParams) (*sqsfanout.Producer, error) {
	producer, err := sqsfanout.NewProducer(p.Config.sqs(), p.Signals)
	if err != nil {
		return nil, named(err)
	}
	p.Lifecycle.Append(fx.StartStopHook(inTime(producer.Start), producer.Close))
	return producer, nil
}

// watchHealth makes a service that uses no backend ready when it has started.
func watchHealth(lc fx.Lifecycle, c Config) {
	lc.Append(fx.StartStopHook(c.Health.Began, c.Health.Stopping))
}

// runConsumers starts the consumers that the service provides, if any.
func runConsumers(lc fx.Lifecycle, c Config, signals *observability.Signals, p sqsfanout.HostParams) error {
	if len(p.Consumers) == 0 {
		return nil
	}
	host, err := p.Host(c.sqs(), signals)
	if err != nil {
		return named(err)
	}
	sqsfanout.Register(lc, host)
	return nil
}
