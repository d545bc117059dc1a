package boundary_test

import (
	"testing"

	"github.com/wrkbelt/coord/testkit/boundary"
)

// clients are import paths that exist, one or more for each pattern of DefaultRaw.
var clients = []string{
	"github.com/redis/go-redis/v9", "github.com/redis/go-redis/extra/redisotel/v9",
	"github.com/go-redis/redis", "github.com/go-redis/redis/v8", "github.com/go-redis/redis_rate/v10",
	"gopkg.in/redis.v5", "github.com/redis/rueidis", "github.com/redis/rueidis/rueidislock", "github.com/rueian/rueidis",
	"github.com/gomodule/redigo/redis", "github.com/garyburd/redigo/redis",
	"github.com/valkey-io/valkey-go", "github.com/valkey-io/valkey-glide/go/v2",
	"github.com/mediocregopher/radix/v4", "github.com/mediocregopher/radix.v2/pool",
	"github.com/joomcode/redispipe/redis", "github.com/hoisie/redis",
	"github.com/go-redis/cache/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
	"github.com/hibiken/asynq", "github.com/gocraft/work", "github.com/rbcervilla/redisstore/v9",
	"github.com/ulule/limiter/v3/drivers/store/redis", "github.com/eko/gocache/store/redis/v4",
	"github.com/wrkbelt/coord/redismodule/internal/conn",
	"example.com/app/vendor/github.com/redis/go-redis/v9",
}

func TestEveryPatternMatchesAClientAndNothingElse(t *testing.T) {
	var c boundary.Config
	for _, path := range clients {
		if !c.IsRaw(path) {
			t.Errorf("%s is not taken for raw", path)
		}
	}
	for _, path := range []string{
		"github.com/redis", "github.com/redis/go-redisx", "github.com/go-redis", "github.com/alicebob/miniredis/v2",
		"github.com/wrkbelt/coord/redismodule", "github.com/wrkbelt/coord/semantic", "github.com/ulule/limiter/v3",
		"example.com/redis", "example.com/github.com/redis/go-redis", "github.com/bsm/redislocker", "context",
	} {
		if c.IsRaw(path) {
			t.Errorf("%s is taken for raw", path)
		}
	}
	// A stale pattern would match nothing that exists.
	for _, pattern := range boundary.DefaultRaw() {
		used := false
		for _, path := range clients {
			used = used || boundary.Matches(pattern, path)
		}
		if !used {
			t.Errorf("pattern %s matches no client of the list", pattern)
		}
	}
}

func TestPatternsOfAConfigAddToTheDefaults(t *testing.T) {
	c := boundary.Config{Raw: []string{"example.com/fork"}}
	if !c.IsRaw("example.com/fork/v2") || !c.IsRaw("github.com/redis/go-redis/v9") {
		t.Error("a config's patterns take the place of the defaults")
	}
}

func TestAllowedPackagesAreSoWithTheirTests(t *testing.T) {
	c := boundary.Config{Allowed: []string{"example.com/app/migrations"}}
	for _, path := range []string{
		"github.com/wrkbelt/coord/redismodule", "github.com/wrkbelt/coord/redismodule/operationstore",
		"github.com/wrkbelt/coord/testkit", "example.com/app/migrations/v2",
		"example.com/app/migrations_test", "example.com/app/migrations.test",
		"example.com/app/migrations [example.com/app/migrations.test]",
		"example.com/app/migrations_test [example.com/app/migrations.test]",
	} {
		if !c.IsAllowed(path) {
			t.Errorf("%s is not allowed", path)
		}
	}
	for _, path := range []string{
		"github.com/wrkbelt/coord/coordfx", "github.com/wrkbelt/coord/examples/quickstart", "example.com/app",
		"example.com/app/migrationsx", "example.com/other [example.com/app/migrations.test]",
	} {
		if c.IsAllowed(path) {
			t.Errorf("%s is allowed", path)
		}
	}
}
