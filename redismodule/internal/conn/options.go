package conn

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Mode is how the servers are deployed.
type Mode string

// The deployments.
const (
	Standalone Mode = "standalone"
	Sentinel   Mode = "sentinel"
	Cluster    Mode = "cluster"
)

// Options describe one Redis deployment; they are validated by the caller.
type Options struct {
	Mode             Mode
	Addresses        []string // one for standalone; the sentinels; some cluster nodes
	MasterName       string   // sentinel only
	Username         string
	Password         string
	SentinelUsername string
	SentinelPassword string
	DB               int
	TLS              *tls.Config
	Protocol         int // RESP version, 2 or 3
	PoolSize         int
	DialTimeout      time.Duration
	CommandTimeout   time.Duration // bound of one read or write where the context has none
	PoolTimeout      time.Duration // wait for a free connection or lane
	ClientName       string        // shown by CLIENT LIST
	// Dial replaces the network dialer, for tests; may be nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Admit sees each new connection to a server before the first command goes over it,
	// and refuses it with an error; may be nil. Not for Cluster.
	Admit func(ctx context.Context, c *redis.Conn) error
}

// unbounded stands for the library's own read and write timeouts, which would hide the
// deadlines that tell a socket for whom it works; the sockets bound them themselves.
const unbounded = time.Hour

// newClient builds the client library's client with every automatic retry off, deadlines
// taken from the context, and sockets of the switchboard.
func newClient(o Options, board *switchboard) redis.UniversalClient {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.Dial, o.CommandTimeout = board.dialer(o), unbounded
	switch o.Mode {
	case Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: o.Addresses, ClientName: o.ClientName, Dialer: o.Dial,
			Username: o.Username, Password: o.Password, Protocol: o.Protocol,
			MaxRedirects: 8, MaxRetries: -1, DisableRoutingPolicies: true,
			DialTimeout: o.DialTimeout, ReadTimeout: o.CommandTimeout, WriteTimeout: o.CommandTimeout,
			DialerRetries: 1, ContextTimeoutEnabled: true,
			PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, TLSConfig: o.TLS,
			DisableIdentity: true, MaintNotificationsConfig: quiet,
		})
	case Sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: o.MasterName, SentinelAddrs: o.Addresses, ClientName: o.ClientName, Dialer: o.Dial,
			SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
			Username: o.Username, Password: o.Password, DB: o.DB, Protocol: o.Protocol, OnConnect: toServers(o.Admit),
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: o.DialTimeout, ReadTimeout: o.CommandTimeout, WriteTimeout: o.CommandTimeout,
			PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, TLSConfig: o.TLS,
			DisableIdentity: true,
		})
	default:
		return redis.NewClient(&redis.Options{
			Addr: o.Addresses[0], ClientName: o.ClientName, Dialer: o.Dial,
			Username: o.Username, Password: o.Password, DB: o.DB, Protocol: o.Protocol, OnConnect: o.Admit,
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: o.DialTimeout, ReadTimeout: o.CommandTimeout, WriteTimeout: o.CommandTimeout,
			PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, TLSConfig: o.TLS,
			DisableIdentity: true, MaintNotificationsConfig: quiet,
		})
	}
}

// toServers keeps admit from the connections to sentinels, for which the client library
// calls it as well. It tells them apart by the address it calls the primary, of which
// it learns from them.
func toServers(admit func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	if admit == nil {
		return nil
	}
	return func(ctx context.Context, c *redis.Conn) error {
		if !strings.HasPrefix(c.String(), "Redis<FailoverClient ") {
			return nil
		}
		return admit(ctx, c)
	}
}
