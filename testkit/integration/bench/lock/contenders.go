package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
)

const ttl = 30 * time.Second

var errContended = errors.New("lock is contended")

// contender is one library, each with its documented defaults.
type contender struct {
	name string
	// acquire takes key, without waiting, and returns what frees it.
	acquire func(ctx context.Context, key string) (release func(), err error)
	// wait takes key, waiting for it; nil where the library cannot.
	wait func(ctx context.Context, key string) (release func(), err error)
}

func open(ctx context.Context, url, addr string) (all []contender, closeAll func(), err error) {
	coord, err := redismodule.Open(redismodule.Config{URL: url, PoolSize: 64}, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := coord.Start(ctx); err != nil {
		return nil, nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64})
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1, NoLoopTracking: true,
	})
	if err != nil {
		return nil, nil, err
	}
	return []contender{
			coordLock(coord.Lock), redsyncLock(client), redislockLock(client), rueidisLock(locker), rawLock(client),
		}, func() {
			locker.Close()
			_ = client.Close()
			_ = coord.Close(context.Background())
		}, nil
}

func coordLock(l semantic.DistributedLock) contender {
	take := func(ctx context.Context, key string, opts ...semantic.LockOption) (func(), error) {
		claim, err := l.Acquire(ctx, key, ttl, opts...)
		if err == nil && !claim.Acquired {
			err = errContended
		}
		return func() { l.Release(ctx, key, claim.Token) }, err
	}
	return contender{
		name:    "coord",
		acquire: func(ctx context.Context, key string) (func(), error) { return take(ctx, key) },
		wait: func(ctx context.Context, key string) (func(), error) {
			return take(ctx, key, semantic.WithWait(time.Minute))
		},
	}
}

func redsyncLock(client *redis.Client) contender {
	rs := redsync.New(goredis.NewPool(client))
	take := func(ctx context.Context, key string, opts ...redsync.Option) (func(), error) {
		m := rs.NewMutex(key, append(opts, redsync.WithExpiry(ttl))...)
		err := m.LockContext(ctx)
		return func() { _, _ = m.UnlockContext(ctx) }, err
	}
	return contender{
		name: "redsync",
		acquire: func(ctx context.Context, key string) (func(), error) {
			return take(ctx, key, redsync.WithTries(1))
		},
		wait: func(ctx context.Context, key string) (func(), error) {
			return take(ctx, key, redsync.WithTries(10_000))
		},
	}
}

func redislockLock(client *redis.Client) contender {
	locker := redislock.New(client)
	take := func(ctx context.Context, key string, o *redislock.Options) (func(), error) {
		lock, err := locker.Obtain(ctx, key, ttl, o)
		return func() { _ = lock.Release(ctx) }, err
	}
	return contender{
		name:    "redislock",
		acquire: func(ctx context.Context, key string) (func(), error) { return take(ctx, key, nil) },
		wait: func(ctx context.Context, key string) (func(), error) {
			return take(ctx, key, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
		},
	}
}

func rueidisLock(locker rueidislock.Locker) contender {
	return contender{
		name: "rueidislock",
		acquire: func(ctx context.Context, key string) (func(), error) {
			_, cancel, err := locker.TryWithContext(ctx, key)
			return func() { cancel() }, err
		},
		wait: func(ctx context.Context, key string) (func(), error) {
			_, cancel, err := locker.WithContext(ctx, key)
			return func() { cancel() }, err
		},
	}
}

// rawLock is the least that a lock can cost: SET NX PX, and a script that compares.
func rawLock(client *redis.Client) contender {
	compareAndDelete := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	return contender{
		name: "raw",
		acquire: func(ctx context.Context, key string) (func(), error) {
			ok, err := client.SetNX(ctx, key, "token", ttl).Result()
			if err == nil && !ok {
				err = errContended
			}
			return func() { _ = compareAndDelete.Run(ctx, client, []string{key}, "token").Err() }, err
		},
	}
}
