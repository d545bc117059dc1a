package operationstore

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic/operation"
)

// Config describes the coordinator's connection and its bounds. The zero value of
// every field but Redis' address has a working default.
type Config struct {
	// Redis is the deployment that has the authority over the operations; every
	// replica of every service that handles the same operations must name the same
	// one. The coordinator makes a connection of its own from it. Its Namespace and
	// PoolSize are the defaults of the ones below; PingInterval and MaxPayloadBytes
	// mean nothing here.
	Redis redismodule.Config
	// ClusterValidated says that the operator has checked Redis Cluster for this use:
	// that a failover may lose the last writes is known and accepted. Without it Mode
	// cluster is refused.
	ClusterValidated bool

	// Namespace keeps services that share a server apart: up to 96 of
	// A-Z a-z 0-9 _ . : - beginning with a letter or digit; default Redis.Namespace.
	Namespace string
	// AuthorityID names the deployment in logs, with the same charset; it proves
	// nothing. Default "redis".
	AuthorityID string

	// Lease is how long an attempt may work without renewing, 1 ms to 1 h; default 30 s.
	Lease time.Duration
	// Retention is how long a record is kept after its last change, Lease to 30 d;
	// default 7 d. After it the same request is a new one to the coordinator.
	Retention time.Duration

	// MaxActive is the most commands with Redis at once, 1 to 10,000; default 64. It
	// is the connection pool's size as well unless Redis.PoolSize is set. Except on
	// Cluster, at most 16 connections carry them, those that come together in
	// pipelines.
	MaxActive int
	// MaxQueued is the most commands that wait for a slot, 1 to 1,000,000; default 1,024.
	MaxQueued int
	// MaxQueuedBytes bounds their keys and arguments, 1 KiB to 1 GiB; default 4 MiB.
	MaxQueuedBytes int
	// QueueDeadline is the longest wait for a slot, 1 ms to CommandDeadline, which bounds
	// the wait too; default 250 ms, or CommandDeadline where that is shorter.
	QueueDeadline time.Duration
	// CommandDeadline bounds a command, its wait and its second try included, 1 ms to
	// 1 min; default 2 s.
	CommandDeadline time.Duration

	// Health, which may be nil, learns whether the authority is there and a primary, as
	// its part operations.
	Health *health.Health

	// Telemetry receives metrics and spans; the zero value means none.
	Telemetry observability.Telemetry
	// MeterProvider receives the gate's statistics as coord.operation.gate.* metrics;
	// default Telemetry.Meter.
	MeterProvider metric.MeterProvider
}

// Settled returns the config with its defaults filled in, or every setting that is out
// of range. Messages name the setting and what is allowed, and never contain a URL or a
// password.
func (c Config) Settled() (Config, error) {
	var bad []error
	bound(&bad, "Lease", &c.Lease, operation.DefaultLease, operation.MinLease, operation.MaxLease)
	// A setting that is out of range itself is no bound of another one.
	shortest, longest := operation.MinLease, time.Minute
	if inRange(c.Lease, operation.MinLease, operation.MaxLease) {
		shortest = c.Lease
	}
	bound(&bad, "Retention", &c.Retention, operation.DefaultRetention, shortest, operation.MaxRetention)
	bound(&bad, "MaxActive", &c.MaxActive, 64, 1, 10_000)
	bound(&bad, "MaxQueued", &c.MaxQueued, 1024, 1, 1_000_000)
	bound(&bad, "MaxQueuedBytes", &c.MaxQueuedBytes, 4<<20, 1<<10, 1<<30)
	bound(&bad, "CommandDeadline", &c.CommandDeadline, 2*time.Second, time.Millisecond, time.Minute)
	if inRange(c.CommandDeadline, time.Millisecond, time.Minute) {
		longest = c.CommandDeadline
	}
	bound(&bad, "QueueDeadline", &c.QueueDeadline, min(250*time.Millisecond, longest), time.Millisecond, longest)

	if c.Redis.PoolSize == 0 {
		c.Redis.PoolSize = min(max(c.MaxActive, 1), 10_000)
	}
	if c.Redis.CommandTimeout == 0 {
		c.Redis.CommandTimeout = longest
	}
	redis, err := c.Redis.Settled()
	if err != nil {
		bad = append(bad, err)
	}
	c.Redis = redis
	if c.Redis.Mode == redismodule.Cluster && !c.ClusterValidated {
		bad = append(bad, errors.New("operations ClusterValidated: not set: want true once Redis Cluster has been checked for this use, or another Redis.Mode"))
	}
	if c.Namespace == "" {
		c.Namespace = c.Redis.Namespace
	}
	if c.AuthorityID == "" {
		c.AuthorityID = "redis"
	}
	for _, s := range []struct{ setting, value string }{{"Namespace", c.Namespace}, {"AuthorityID", c.AuthorityID}} {
		var invalid *operation.InvalidError
		if errors.As(operation.ValidateNamespace(s.value), &invalid) {
			bad = append(bad, fmt.Errorf("operations %s: %.100q: want %s", s.setting, s.value, invalid.Allowed))
		}
	}
	if r := reflect.ValueOf(c.MeterProvider); r.Kind() == reflect.Pointer && r.IsNil() {
		bad = append(bad, fmt.Errorf("operations MeterProvider: nil of type %T: want a provider, or nil for no metrics", c.MeterProvider))
	}
	return c, errors.Join(bad...)
}

// bound fills in a default and checks a range.
func bound[N int | time.Duration](bad *[]error, setting string, value *N, standard, least, most N) {
	if *value == 0 {
		*value = standard
	}
	if !inRange(*value, least, most) {
		*bad = append(*bad, fmt.Errorf("operations %s: %v: want %v to %v", setting, *value, least, most))
	}
}

// inRange tells whether a value is in a range.
func inRange[N int | time.Duration](value, least, most N) bool {
	return least <= value && value <= most
}

// connection is the connection layer's part of a settled config.
func (c Config) connection() conn.Options {
	r := c.Redis
	return conn.Options{
		Mode: conn.Mode(r.Mode), Addresses: r.Addresses, MasterName: r.MasterName,
		Username: r.Username, Password: r.Password,
		SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword,
		DB: r.DB, TLS: r.TLS, Protocol: r.Protocol, PoolSize: r.PoolSize,
		DialTimeout: r.DialTimeout, CommandTimeout: r.CommandTimeout, PoolTimeout: r.PoolTimeout,
		ClientName: "coord:" + r.InstanceID + ":operations", Dial: r.Dial, Admit: admit,
	}
}
