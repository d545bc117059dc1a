package boundary

import (
	"slices"
	"strings"
)

// Config is what the analyzer takes for raw, and where it lets it be. Its zero value is
// the rule of the house.
//
// A pattern is an import path that stands for itself and all below it; with a * at its
// end it stands for every path that begins so.
type Config struct {
	// Raw are patterns of raw clients in addition to [DefaultRaw].
	Raw []string `json:"raw"`
	// Allowed are patterns of packages that may use raw clients, in addition to
	// [DefaultAllowed].
	Allowed []string `json:"allowed"`
}

// DefaultRaw returns the patterns of packages that are a way to Redis around the
// contracts: clients, and what holds or wraps one.
func DefaultRaw() []string {
	return []string{
		// clients
		"github.com/redis/go-redis",
		"github.com/go-redis/redis*", // before version 9; redis_rate, redismock
		"gopkg.in/redis.*",
		"github.com/redis/rueidis",
		"github.com/rueian/rueidis",
		"github.com/gomodule/redigo",
		"github.com/garyburd/redigo",
		"github.com/valkey-io/valkey-go",
		"github.com/valkey-io/valkey-glide",
		"github.com/mediocregopher/radix*",
		"github.com/joomcode/redispipe",
		"github.com/hoisie/redis",
		// what holds a client, and does worse what a contract does
		"github.com/go-redis/cache",
		"github.com/go-redsync/redsync",
		"github.com/bsm/redislock",
		"github.com/hibiken/asynq*",
		"github.com/gocraft/work",
		"github.com/rbcervilla/redisstore",
		"github.com/ulule/limiter/v3/drivers/store/redis",
		"github.com/eko/gocache/store/redis*",
		// this module's own connection layer
		"github.com/wrkbelt/coord/redismodule/internal",
	}
}

// DefaultAllowed returns the patterns of packages that may use raw clients: the Redis
// services with the adapter factory of Socket.IO, which live in one place, and the test
// kit.
func DefaultAllowed() []string {
	return []string{
		"github.com/wrkbelt/coord/redismodule",
		"github.com/wrkbelt/coord/testkit",
	}
}

// rules is a config with the defaults.
type rules struct{ raw, allowed []string }

func (c Config) rules() rules {
	return rules{raw: append(DefaultRaw(), c.Raw...), allowed: append(DefaultAllowed(), c.Allowed...)}
}

// IsRaw tells whether a package is one whose types are raw.
func (c Config) IsRaw(path string) bool { return c.rules().isRaw(path) }

func (r rules) isRaw(path string) bool { return matches(r.raw, path) }

// isAllowed also takes the names that the go command gives to test variants.
func (r rules) isAllowed(path string) bool {
	path, _, _ = strings.Cut(path, " ")
	return matches(r.allowed, path) || matches(r.allowed, strings.TrimSuffix(path, ".test")) ||
		matches(r.allowed, strings.TrimSuffix(path, "_test")) || r.isRaw(path)
}

func matches(patterns []string, path string) bool {
	if i := strings.LastIndex(path, "/vendor/"); i >= 0 {
		path = path[i+len("/vendor/"):]
	}
	return slices.ContainsFunc(patterns, func(p string) bool {
		if begin, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(path, begin)
		}
		return path == p || strings.HasPrefix(path, p+"/")
	})
}
