package operationstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
)

// Module provides the [operation.Coordinator] to an fx graph that has a [Config] and
// an *[observability.Signals]. It is built, and its connection dialed, only when
// something injects it. The start fails unless the server is a proven primary.
var Module = fx.Module("operations", fx.Provide(provide))

func provide(lc fx.Lifecycle, config Config, signals *observability.Signals) (operation.Coordinator, error) {
	s, err := Open(config, signals)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StartStopHook(s.Start, s.Close))
	return s, nil
}

// Opened is a [Store] with the connection that was made for it.
type Opened struct {
	*Store
	connection  *conn.Command
	health      *health.Part
	measure     measures
	stopMetrics func() error
}

// Open checks config and makes a coordinator with a connection of its own. It does no
// I/O; [Opened.Start] does. signals may be nil. A broken MeterProvider is an error.
func Open(config Config, signals *observability.Signals) (*Opened, error) {
	config, err := config.Settled()
	if err != nil {
		return nil, err
	}
	connection := conn.NewCommand(config.connection())
	o := &Opened{
		Store:      newStore(config, newTransport(connection), semantic.SystemClock{}, signals),
		connection: connection,
	}
	if o.measure, err = newMeasures(config.Telemetry); err != nil {
		return nil, err
	}
	if config.MeterProvider == nil {
		config.MeterProvider = config.Telemetry.Meter
	}
	o.stopMetrics, err = observability.ObserveFigures(config.MeterProvider, figures, func() []int64 { return o.Stats().values() })
	if err != nil {
		return nil, fmt.Errorf("operation coordinator: %w", err)
	}
	o.health = config.Health.Register("operations", o.check)
	return o, nil
}

// Start proves that the server is a primary which nothing stands before that resends
// commands or rewrites keys, and that the user may do what commands do, and emits a
// signal unless the server's maxmemory-policy is noeviction. It writes nothing. The error
// says what could not be proven, or what kept it from that and the setting to look at,
// and holds no secret. Four round trips.
func (o *Opened) Start(ctx context.Context) error {
	if err := operation.ValidateContext(ctx); err != nil {
		return err
	}
	op := conn.Op{Name: "operation.start", Key: o.config.AuthorityID, ReadOnly: true}
	err := o.connection.Inspect(op, func(client redis.UniversalClient) error {
		if err := inspect(client, o.config.ClusterValidated); err != nil {
			return err
		}
		if err := prove(ctx, client); err != nil {
			return err
		}
		policy, err := evictionPolicy(ctx, client)
		if err != nil || policy != "noeviction" {
			o.signals.OperationEvictable(o.config.AuthorityID, policy, err)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("operation coordinator on %q: %w", o.config.AuthorityID, err)
		o.signals.ConnectionUnready("operations", err)
		return err
	}
	o.health.Started()
	return nil
}

// check asks every primary for its role. One round trip.
func (o *Opened) check(ctx context.Context) health.Result {
	var r health.Result
	op := conn.Op{Name: "operation.health", Key: o.config.AuthorityID, ReadOnly: true}
	err := o.connection.Inspect(op, func(client redis.UniversalClient) error {
		s := client.PoolStats()
		r.Pool = &health.Pool{Total: s.TotalConns, Idle: s.IdleConns, Waits: s.WaitCount, Timeouts: s.Timeouts, Stale: s.StaleConns}
		if cluster, ok := client.(*redis.ClusterClient); ok {
			return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return isPrimary(ctx, node) })
		}
		return isPrimary(ctx, client)
	})
	if err != nil {
		r.Err, r.Cause = err, "unavailable"
	}
	return r
}

// Close refuses new commands, dismisses the waiting ones, waits for those in flight
// until ctx ends, and closes the connection. Closing twice is fine.
func (o *Opened) Close(ctx context.Context) error {
	if err := operation.ValidateContext(ctx); err != nil {
		return err
	}
	o.health.Closed()
	o.Store.close()
	return errors.Join(o.stopMetrics(), o.connection.Close(ctx))
}
