package coordfx

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/redismodule"
)

// Variable is one environment variable that [ConfigFromEnv] reads.
type Variable struct {
	Name    string // COORD_…
	Setting string // the field of Config that it sets
	Default string // what an unset one means
	Meaning string
	Secret  bool // its value appears in no error

	set func(c *Config, value string) error
}

// ConfigFromEnv reads a Config from the process's COORD_* variables; see [Variables].
// It returns every variable that cannot be parsed, and every COORD_ variable that does
// not exist, so that a misspelt one is not silently without effect. Names beginning
// with COORD_TEST_ are left alone.
func ConfigFromEnv() (Config, error) { return configFrom(os.Environ()) }

func configFrom(environ []string) (Config, error) {
	var c Config
	var bad []error
	variables := Variables()
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "COORD_") || strings.HasPrefix(name, "COORD_TEST_") || value == "" {
			continue
		}
		i := slices.IndexFunc(variables, func(v Variable) bool { return v.Name == name })
		if i < 0 {
			bad = append(bad, fmt.Errorf("%s: no such variable: want one of %s", name, names(variables)))
			continue
		}
		if err := variables[i].set(&c, value); err != nil {
			shown := strconv.Quote(value)
			if variables[i].Secret || strings.Contains(value, "@") || strings.Contains(value, "://") {
				shown = "(value left out, it may hold a password)" // also where a URL is in the wrong variable
			}
			bad = append(bad, fmt.Errorf("%s: %s: want %w", name, shown, err))
		}
	}
	if err := errors.Join(bad...); err != nil {
		return Config{}, fmt.Errorf("coord configuration: %w", err)
	}
	return c, nil
}

func names(variables []Variable) string {
	var all []string
	for _, v := range variables {
		all = append(all, v.Name)
	}
	return strings.Join(all, ", ")
}

// Setters for the kinds of values; their errors say what is allowed.

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		*field(c) = value
		return nil
	}
}

func integer(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil {
			return errors.New("a whole number")
		}
		*field(c) = n
		return nil
	}
}

func duration(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil {
			return errors.New("a duration with its unit, such as 250ms or 2s")
		}
		*field(c) = d
		return nil
	}
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("true or false")
		}
		*field(c) = b
		return nil
	}
}

func list(field func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, value string) error {
		for item := range strings.SplitSeq(value, ",") {
			if item = strings.TrimSpace(item); item == "" {
				return errors.New("a list separated by commas, without empty items")
			}
			*field(c) = append(*field(c), item)
		}
		return nil
	}
}

// Variables returns every variable that ConfigFromEnv reads, in the order of the
// documentation.
func Variables() []Variable {
	return []Variable{
		{Name: "COORD_INSTANCE_ID", Setting: "InstanceID", Default: "host-pid-random", Meaning: "names this process to operators", set: text(func(c *Config) *string { return &c.InstanceID })},
		{Name: "COORD_NAMESPACE", Setting: "Namespace", Default: "coord", Meaning: "begins every Redis key and channel", set: text(func(c *Config) *string { return &c.Namespace })},

		{Name: "COORD_REDIS_URL", Setting: "Redis.URL", Default: "none", Meaning: "redis://[user:password@]host[:port][/db], rediss:// for TLS; several hosts by comma for sentinel and cluster", Secret: true, set: text(func(c *Config) *string { return &c.Redis.URL })},
		{Name: "COORD_REDIS_MODE", Setting: "Redis.Mode", Default: "standalone", Meaning: "standalone, sentinel or cluster", set: func(c *Config, value string) error {
			c.Redis.Mode = redismodule.Mode(value)
			return nil
		}},
		{Name: "COORD_REDIS_ADDRESSES", Setting: "Redis.Addresses", Default: "none", Meaning: "host:port by comma, instead of the URL", set: list(func(c *Config) *[]string { return &c.Redis.Addresses })},
		{Name: "COORD_REDIS_MASTER_NAME", Setting: "Redis.MasterName", Default: "none", Meaning: "the primary's name, with mode sentinel", set: text(func(c *Config) *string { return &c.Redis.MasterName })},
		{Name: "COORD_REDIS_USERNAME", Setting: "Redis.Username", Default: "none", Meaning: "ACL user", set: text(func(c *Config) *string { return &c.Redis.Username })},
		{Name: "COORD_REDIS_PASSWORD", Setting: "Redis.Password", Default: "none", Meaning: "password of the user", Secret: true, set: text(func(c *Config) *string { return &c.Redis.Password })},
		{Name: "COORD_REDIS_SENTINEL_USERNAME", Setting: "Redis.SentinelUsername", Default: "none", Meaning: "ACL user of the sentinels", set: text(func(c *Config) *string { return &c.Redis.SentinelUsername })},
		{Name: "COORD_REDIS_SENTINEL_PASSWORD", Setting: "Redis.SentinelPassword", Default: "none", Meaning: "password of the sentinels", Secret: true, set: text(func(c *Config) *string { return &c.Redis.SentinelPassword })},
		{Name: "COORD_REDIS_DB", Setting: "Redis.DB", Default: "0", Meaning: "database number", set: integer(func(c *Config) *int { return &c.Redis.DB })},
		{Name: "COORD_REDIS_PROTOCOL", Setting: "Redis.Protocol", Default: "3", Meaning: "RESP version, 2 or 3", set: integer(func(c *Config) *int { return &c.Redis.Protocol })},
		{Name: "COORD_REDIS_POOL_SIZE", Setting: "Redis.PoolSize", Default: "20", Meaning: "most command connections to one server", set: integer(func(c *Config) *int { return &c.Redis.PoolSize })},
		{Name: "COORD_REDIS_DIAL_TIMEOUT", Setting: "Redis.DialTimeout", Default: "2s", Meaning: "bound of a connect", set: duration(func(c *Config) *time.Duration { return &c.Redis.DialTimeout })},
		{Name: "COORD_REDIS_COMMAND_TIMEOUT", Setting: "Redis.CommandTimeout", Default: "2s", Meaning: "bound of one reply", set: duration(func(c *Config) *time.Duration { return &c.Redis.CommandTimeout })},
		{Name: "COORD_REDIS_POOL_TIMEOUT", Setting: "Redis.PoolTimeout", Default: "2s", Meaning: "bound of the wait for a lane, and of that for a free connection", set: duration(func(c *Config) *time.Duration { return &c.Redis.PoolTimeout })},
		{Name: "COORD_REDIS_PING_INTERVAL", Setting: "Redis.PingInterval", Default: "3s", Meaning: "how often a subscription's link is probed", set: duration(func(c *Config) *time.Duration { return &c.Redis.PingInterval })},
		{Name: "COORD_REDIS_MAX_PAYLOAD_BYTES", Setting: "Redis.MaxPayloadBytes", Default: "262144", Meaning: "largest broadcast", set: integer(func(c *Config) *int { return &c.Redis.MaxPayloadBytes })},

		{Name: "COORD_MONGODB_URI", Setting: "Mongo.URI", Default: "none", Meaning: "mongodb://[user:password@]host[:port][/database][?options]", Secret: true, set: text(func(c *Config) *string { return &c.Mongo.URI })},
		{Name: "COORD_MONGODB_DATABASE", Setting: "Mongo.Database", Default: "the URI's", Meaning: "database of the idempotency log", set: text(func(c *Config) *string { return &c.Mongo.Database })},
		{Name: "COORD_MONGODB_COLLECTION", Setting: "Mongo.Collection", Default: mongolog.DefaultCollection, Meaning: "collection of the idempotency log", set: text(func(c *Config) *string { return &c.Mongo.Collection })},
		{Name: "COORD_MONGODB_SKIP_INDEX_CREATION", Setting: "Mongo.SkipIndexCreation", Default: "false", Meaning: "true: indexes are checked, not created", set: boolean(func(c *Config) *bool { return &c.Mongo.SkipIndexCreation })},
		{Name: "COORD_MONGODB_TIMEOUT", Setting: "Mongo.Timeout", Default: "10s", Meaning: "bound of a call without a deadline", set: duration(func(c *Config) *time.Duration { return &c.Mongo.Timeout })},
		{Name: "COORD_MONGODB_TRY_TIMEOUT", Setting: "Mongo.TryTimeout", Default: "2s", Meaning: "bound of one try of a call", set: duration(func(c *Config) *time.Duration { return &c.Mongo.TryTimeout })},
		{Name: "COORD_MONGODB_MAX_POOL_SIZE", Setting: "Mongo.MaxPoolSize", Default: "20", Meaning: "most connections to one server", set: integer(func(c *Config) *int { return &c.Mongo.MaxPoolSize })},

		{Name: "COORD_SQS_QUEUE_URL", Setting: "SQS.QueueURL", Default: "none", Meaning: "URL of the FIFO queue", set: text(func(c *Config) *string { return &c.SQS.QueueURL })},
		{Name: "COORD_SQS_REGION", Setting: "SQS.Region", Default: "the SDK's", Meaning: "the queue's region", set: text(func(c *Config) *string { return &c.SQS.Region })},
		{Name: "COORD_SQS_ENDPOINT_URL", Setting: "SQS.EndpointURL", Default: "the SDK's", Meaning: "endpoint of another implementation of SQS", set: text(func(c *Config) *string { return &c.SQS.EndpointURL })},
		{Name: "COORD_SQS_CONCURRENCY", Setting: "SQS.Concurrency", Default: "4", Meaning: "batches of one fan-out in flight", set: integer(func(c *Config) *int { return &c.SQS.Concurrency })},
		{Name: "COORD_SQS_ATTEMPTS", Setting: "SQS.Attempts", Default: "5", Meaning: "sends of a record that fails for a passing reason", set: integer(func(c *Config) *int { return &c.SQS.Attempts })},
		{Name: "COORD_SQS_CALL_TIMEOUT", Setting: "SQS.CallTimeout", Default: "10s", Meaning: "bound of one request", set: duration(func(c *Config) *time.Duration { return &c.SQS.CallTimeout })},
		{Name: "COORD_SQS_POLL_WAIT", Setting: "SQS.PollWait", Default: "5s", Meaning: "how long a receive waits for a message", set: duration(func(c *Config) *time.Duration { return &c.SQS.PollWait })},
		{Name: "COORD_SQS_ALLOW_NO_REDRIVE", Setting: "SQS.AllowNoRedrive", Default: "false", Meaning: "true: a queue without a dead-letter queue is accepted", set: boolean(func(c *Config) *bool { return &c.SQS.AllowNoRedrive })},

		{Name: "COORD_CRON_MAX_SKEW", Setting: "Cron.MaxSkew", Default: "5m", Meaning: "largest difference between two replicas' clocks", set: duration(func(c *Config) *time.Duration { return &c.Cron.MaxSkew })},
		{Name: "COORD_CRON_RETENTION", Setting: "Cron.Retention", Default: "10m", Meaning: "least time for which a claimed tick is remembered", set: duration(func(c *Config) *time.Duration { return &c.Cron.Retention })},
		{Name: "COORD_CRON_HISTORY", Setting: "Cron.History", Default: "100", Meaning: "run records kept for each job", set: integer(func(c *Config) *int { return &c.Cron.History })},
	}
}
