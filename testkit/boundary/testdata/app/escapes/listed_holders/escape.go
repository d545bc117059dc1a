package listedholders

import (
	"github.com/bsm/redislock"           // want "import"
	"github.com/go-redis/cache/v9"       // want "import"
	"github.com/go-redis/redis_rate/v10" // want "import"
	"github.com/go-redsync/redsync/v4"   // want "import"
	"github.com/hibiken/asynq"           // want "import"
)

func New(
	a *redsync.Redsync, // want "parameter"
	b *redislock.Client, // want "parameter"
	c *asynq.Client, // want "parameter"
	d *cache.Cache, // want "parameter"
	e *redis_rate.Limiter, // want "parameter"
) {
}
