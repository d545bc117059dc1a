package coordfx

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
)

// Config has every setting of the module. The zero value of a backend's section means
// that the backend is not used; what injects it all the same stops the app with the
// name of the missing setting.
type Config struct {
	// InstanceID names this process to operators, in stored locks, in leases and in
	// run records: up to 128 printable characters without spaces. Default:
	// host-pid-random.
	InstanceID string
	// Namespace begins every Redis key and channel, so that environments can share a
	// server. Default: coord.
	Namespace string

	// Redis is for the five Redis-backed services and the runner.
	Redis redismodule.Config
	// Mongo is for the idempotency log, and so for consumers.
	Mongo mongolog.Config
	// SQS is for fan-out jobs and consumers.
	SQS sqsfanout.Config
	// Cron is for the runner.
	Cron CronConfig

	// Telemetry receives the metrics and spans of all parts; the zero value means none.
	// A provider that does not work stops the app. A section's own Telemetry goes first.
	Telemetry observability.Telemetry
	// Health, which may be nil, learns whether the backends and subscriptions that the
	// service uses work; see [NewHealth]. A section's own Health goes first.
	Health *health.Health
}

// NewHealth returns what a service gives to Config.Health, and asks whether it is ready:
// health.Check(ctx), or as the http.Handler of a readiness probe.
func NewHealth() *health.Health { return health.New() }

// CronConfig has the runner's settings; the defaults are those of [cronfx.Params].
type CronConfig struct {
	MaxSkew   time.Duration // largest difference between two replicas' clocks
	Retention time.Duration // least time for which a claimed tick is remembered
	History   int           // records kept for each job
	// OnRun, which may be nil, is called with every run record of this replica.
	OnRun func(cronfx.RunRecord)
}

// Validate checks every setting that is given, also those of backends that nothing
// injects, and returns all that is wrong in one error: each names its setting, the
// variable that sets it, the value and what is allowed. Values that may be secret are
// left out. It does no I/O.
func (c Config) Validate() error {
	redis, mongo := c.redis(), c.Mongo
	if redis.URL == "" && len(redis.Addresses) == 0 {
		redis.Addresses = []string{"unset:6379"} // missing is only wrong once it is needed
	}
	if mongo.URI == "" {
		mongo.URI = "mongodb://unset/unset"
	}
	_, redisErr := redis.Settled()
	_, mongoErr := mongo.Settled()
	_, sqsErr := c.SQS.Settled()
	return named(redisErr, mongoErr, sqsErr, c.Cron.validate())
}

// validate checks the runner's settings, whether or not there is a job.
func (c CronConfig) validate() error {
	var bad []error
	between := func(setting string, value, most time.Duration) {
		if value < 0 || value > most {
			bad = append(bad, fmt.Errorf("cron %s: %v: want 0 for the default, up to %v", setting, value, most))
		}
	}
	between("MaxSkew", c.MaxSkew, semantic.MaxTTL/4)
	between("Retention", c.Retention, semantic.MaxTTL)
	if c.History < 0 || c.History > 10_000 {
		bad = append(bad, fmt.Errorf("cron History: %d: want 0 for the default, up to 10000", c.History))
	}
	return errors.Join(bad...)
}

// mongo and sqs are those sections with what they share with the others.
func (c Config) mongo() mongolog.Config {
	m := c.Mongo
	m.Telemetry, m.Health = m.Telemetry.Or(c.Telemetry), cmp.Or(m.Health, c.Health)
	return m
}

func (c Config) sqs() sqsfanout.Config {
	s := c.SQS
	s.Telemetry, s.Health = s.Telemetry.Or(c.Telemetry), cmp.Or(s.Health, c.Health)
	return s
}

// redis is the Redis section with what it shares with the others.
func (c Config) redis() redismodule.Config {
	r := c.Redis
	if c.InstanceID != "" {
		r.InstanceID = c.InstanceID
	}
	if c.Namespace != "" {
		r.Namespace = c.Namespace
	}
	r.Telemetry, r.Health = r.Telemetry.Or(c.Telemetry), cmp.Or(r.Health, c.Health)
	return r
}

// named adds the environment variables to errors that name settings.
func named(errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		for _, v := range Variables() {
			section, field, ok := strings.Cut(v.Setting, ".")
			prefix := strings.ToLower(section) + " " + field + ":"
			if !ok {
				prefix = " " + section + ":"
			}
			if i := strings.Index(line, prefix); i >= 0 {
				line += " (" + v.Name + ")"
				break
			}
		}
		lines = append(lines, line)
	}
	return fmt.Errorf("coord configuration: %w", &configError{strings.Join(lines, "; "), err})
}

// configError says it with the variables' names and keeps the errors that it is made of.
type configError struct {
	text  string
	cause error
}

func (e *configError) Error() string { return e.text }
func (e *configError) Unwrap() error { return e.cause }
