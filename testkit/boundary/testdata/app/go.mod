module example.com/app

go 1.26

require (
	github.com/acme/kv v1.0.0
	github.com/bsm/redislock v1.0.0
	github.com/go-redis/cache/v9 v9.0.0
	github.com/go-redis/redis/v8 v8.0.0
	github.com/go-redis/redis_rate/v10 v10.0.0
	github.com/go-redsync/redsync/v4 v4.0.0
	github.com/gomodule/redigo v1.0.0
	github.com/hibiken/asynq v1.0.0
	github.com/mediocregopher/radix/v4 v4.0.0
	github.com/redis/go-redis/v9 v9.0.0
	github.com/redis/rueidis v1.0.0
	github.com/valkey-io/valkey-go v1.0.0
	github.com/wrkbelt/coord v1.0.0
	go.uber.org/dig v1.0.0
	go.uber.org/fx v1.0.0
)
