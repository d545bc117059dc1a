package redismodule

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
)

// Mode is how the Redis servers are deployed.
type Mode string

// The deployments.
const (
	Standalone Mode = "standalone" // one server, or a managed endpoint
	Sentinel   Mode = "sentinel"   // a primary found through sentinels
	Cluster    Mode = "cluster"    // Redis Cluster
)

// Config describes the Redis deployment and this instance's use of it. The zero value
// of every field but the address has a working default.
type Config struct {
	// URL is redis://[user:password@]host[:port][/db], or rediss:// for TLS. What it
	// carries wins over the fields below. With Sentinel or Cluster it may list
	// several hosts separated by commas. Of query options it takes ?db=<number> and
	// ?skip_verify=true, which turns the check of the server's certificate off.
	URL string
	// Mode is the deployment; default Standalone.
	Mode Mode
	// Addresses are host:port: the server, the sentinels, or some cluster nodes.
	Addresses []string
	// MasterName names the primary to the sentinels; required with Sentinel.
	MasterName string
	// Username and Password are the ACL user's; without a user the default one's.
	Username, Password string
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername, SentinelPassword string
	// DB is the database number, 0 to 15; 0 with Cluster.
	DB int
	// TLS turns TLS on; rediss:// makes one with the host's name.
	TLS *tls.Config
	// Protocol is the RESP version, 2 or 3; default 3.
	Protocol int

	// PoolSize is the most connections of the command role to one server, 1 to
	// 10,000; default 20.
	PoolSize int
	// DialTimeout bounds a connect, TLS and login included; default 2 s.
	DialTimeout time.Duration
	// CommandTimeout bounds one reply where the caller's context does not end
	// earlier; default 2 s.
	CommandTimeout time.Duration
	// PoolTimeout bounds the wait for a lane, 16 of which carry the small calls, those
	// that wait together, and that for a free connection; default 2 s.
	PoolTimeout time.Duration

	// Namespace begins every key and channel, so that environments can share a
	// server: letters, digits, and _ . - up to 64; default "coord".
	Namespace string
	// InstanceID names this process to operators in stored locks and leases, up to
	// 128 printable characters without spaces; default <host>-<pid>-<random>.
	InstanceID string

	// PingInterval is how often a subscription's link is probed, with two PINGs and
	// one message to itself; a silent or undelivering one is found lost within two of
	// them. Above 200 ms a busy machine is not taken for a lost link. 10 ms to 1 min;
	// default 3 s.
	PingInterval time.Duration
	// MaxPayloadBytes is the largest broadcast, 1 to 16 MiB; default 256 KiB.
	MaxPayloadBytes int

	// Telemetry receives metrics and spans; the zero value means none.
	Telemetry observability.Telemetry

	// Health, which may be nil, learns whether Redis and the subscriptions work, as its
	// parts redis and redis_subscriber.
	Health *health.Health

	// Dial replaces the network dialer, for tests; may be nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

var (
	namespaceForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	instanceForm  = regexp.MustCompile(`^[!-~]{1,128}$`)
)

// Settled returns the config with its URL taken apart and its defaults filled in, or
// every setting that is out of range. Messages name the setting and what is allowed,
// and never contain a URL or a password.
func (c Config) Settled() (Config, error) {
	var bad []error
	refuse := func(setting string, value any, allowed string) {
		bad = append(bad, fmt.Errorf("redis %s: %v: want %s", setting, value, allowed))
	}
	if c.Mode == "" {
		c.Mode = Standalone
	}
	if !slices.Contains([]Mode{Standalone, Sentinel, Cluster}, c.Mode) {
		refuse("Mode", shown(string(c.Mode)), "standalone, sentinel or cluster")
	}
	if c.URL != "" {
		if err := c.applyURL(); err != nil {
			bad = append(bad, err)
		}
	} else if len(c.Addresses) == 0 {
		refuse("URL", "not set", "redis://[user:password@]host[:port][/db], or Addresses")
	}
	for _, a := range c.Addresses {
		if !address(a) {
			refuse("Addresses", shown(a), "host:port")
		}
	}
	if c.Mode == Standalone && len(c.Addresses) > 1 {
		refuse("Addresses", fmt.Sprintf("%d of them", len(c.Addresses)), "one, or Mode sentinel or cluster")
	}
	if c.Mode == Sentinel && c.MasterName == "" {
		refuse("MasterName", "not set", "the primary's name, with Mode sentinel")
	}
	if c.DB < 0 || c.DB > 15 || (c.Mode == Cluster && c.DB != 0) {
		refuse("DB", c.DB, "0 to 15, and 0 with Mode cluster")
	}
	number(&c.Protocol, 3, 2, 3, "Protocol", refuse)
	number(&c.PoolSize, 20, 1, 10_000, "PoolSize", refuse)
	number(&c.MaxPayloadBytes, 256<<10, 1, 16<<20, "MaxPayloadBytes", refuse)
	number(&c.DialTimeout, 2*time.Second, time.Millisecond, time.Minute, "DialTimeout", refuse)
	number(&c.CommandTimeout, 2*time.Second, time.Millisecond, time.Minute, "CommandTimeout", refuse)
	number(&c.PoolTimeout, 2*time.Second, time.Millisecond, time.Minute, "PoolTimeout", refuse)
	number(&c.PingInterval, 3*time.Second, 10*time.Millisecond, time.Minute, "PingInterval", refuse)
	if c.Namespace == "" {
		c.Namespace = "coord"
	}
	if !namespaceForm.MatchString(c.Namespace) {
		refuse("Namespace", shown(c.Namespace), "1 to 64 letters, digits or _ . -")
	}
	if c.InstanceID == "" {
		c.InstanceID = NewInstanceID()
	}
	if !instanceForm.MatchString(c.InstanceID) {
		refuse("InstanceID", shown(c.InstanceID), "1 to 128 printable ASCII characters without spaces")
	}
	return c, errors.Join(bad...)
}

// address tells whether a is host:port, or the path of a socket.
func address(a string) bool {
	if strings.HasPrefix(a, "/") {
		return true
	}
	_, port, err := net.SplitHostPort(a)
	n, bad := strconv.Atoi(port)
	return err == nil && bad == nil && n > 0 && n < 1<<16 && !strings.ContainsAny(a, "@/")
}

// shown is a value for a message: one that looks like a URL may hold a password.
func shown(value string) string {
	if strings.ContainsAny(value, "@/") {
		return "not usable (its text is left out, it may hold a password)"
	}
	return fmt.Sprintf("%q", value)
}

// number fills in a default and checks a range.
func number[N int | time.Duration](value *N, standard, least, most N, setting string, refuse func(string, any, string)) {
	if *value == 0 {
		*value = standard
	}
	if *value < least || *value > most {
		refuse(setting, *value, fmt.Sprintf("%v to %v", least, most))
	}
}

func (c *Config) applyURL() error {
	malformed := errors.New("redis URL: not usable (its text is left out, it may hold a password): want redis://[user:password@]host[:port][/db], or rediss:// for TLS")
	scheme, rest, ok := strings.Cut(c.URL, "://")
	if !ok {
		return malformed
	}
	// The library's parser takes one host; more are split off first.
	userinfo, hosts := "", rest
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		userinfo, hosts = rest[:i+1], rest[i+1:]
	}
	path := ""
	if i := strings.IndexAny(hosts, "/?"); i >= 0 && scheme != "unix" {
		hosts, path = hosts[:i], hosts[i:]
	}
	if err := knownOptions(path); err != nil {
		return err
	}
	c.Addresses = nil
	for host := range strings.SplitSeq(hosts, ",") {
		o, err := redis.ParseURL(scheme + "://" + userinfo + host + path)
		if err != nil {
			return malformed
		}
		c.Addresses = append(c.Addresses, o.Addr)
		if o.Username != "" || o.Password != "" {
			c.Username, c.Password = o.Username, o.Password
		}
		if path != "" && o.DB != 0 {
			c.DB = o.DB
		}
		if o.TLSConfig != nil && c.TLS == nil {
			c.TLS = o.TLSConfig
			if len(c.Addresses) > 1 || strings.Contains(hosts, ",") {
				c.TLS = o.TLSConfig.Clone()
				c.TLS.ServerName = "" // the name is the dialed host's
			}
		}
	}
	c.URL = ""
	return nil
}

// knownOptions refuses options of a URL's query that would be without effect.
func knownOptions(path string) error {
	_, query, _ := strings.Cut(path, "?")
	options, _ := url.ParseQuery(query) // what it cannot read, the library's parser refuses
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if name != "db" && name != "skip_verify" {
			return fmt.Errorf("redis URL: option %s: want db or skip_verify; everything else is a setting of its own", shown(name))
		}
	}
	return nil
}

// NewInstanceID returns a name for this process: <host>-<pid>-<random>.
func NewInstanceID() string {
	host, err := os.Hostname()
	if err != nil || !instanceForm.MatchString(host) || len(host) > 80 {
		host = "host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:6])
}

// options are the connection layer's part of a settled config.
func (c Config) options() conn.Options {
	return conn.Options{
		Mode: conn.Mode(c.Mode), Addresses: c.Addresses, MasterName: c.MasterName,
		Username: c.Username, Password: c.Password,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		DB: c.DB, TLS: c.TLS, Protocol: c.Protocol, PoolSize: c.PoolSize,
		DialTimeout: c.DialTimeout, CommandTimeout: c.CommandTimeout, PoolTimeout: c.PoolTimeout,
		ClientName: "coord:" + c.InstanceID, Dial: c.Dial,
	}
}
