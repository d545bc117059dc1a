package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/operationstore"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

const callers = 64

// bench has the two sides on one server.
type bench struct {
	server      *testkit.RedisServer
	bare        *redis.Client
	coordinator *operationstore.Opened
	round       int
}

func openBench(ctx context.Context) (*bench, error) {
	server, err := testkit.LaunchRedis(ctx, "")
	if err != nil {
		return nil, err
	}
	coordinator, err := operationstore.Open(operationstore.Config{Redis: redismodule.Config{URL: server.URL()}}, nil)
	if err == nil {
		err = coordinator.Start(ctx)
	}
	if err != nil {
		server.Stop()
		return nil, err
	}
	bare := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: callers, MaxRetries: -1})
	return &bench{server: server, bare: bare, coordinator: coordinator}, nil
}

func (b *bench) close() {
	_ = b.bare.Close()
	_ = b.coordinator.Close(context.Background())
	b.server.Stop()
}

// once does n calls of each kind, on keys that nothing has touched before.
func (b *bench) once(ctx context.Context, n int) (r result, err error) {
	b.round++
	b.server.Must("FLUSHALL")
	leases := make([]operation.Lease, n)
	value := string(operation.NewToken())
	identities := make([]operation.Identity, n)
	for i := range identities {
		identities[i] = operation.Identity{
			Tenant: "acme", Operation: "charge", IdempotencyKey: fmt.Sprintf("%d-%d", b.round, i),
			Fingerprint: strings.Repeat("0123456789abcdef", 4), DurableID: fmt.Sprint("payment-", i),
		}
	}
	setnx := func(i int) error {
		ok, err := b.bare.SetNX(ctx, fmt.Sprintf("setnx:%d:%d", b.round, i), value, time.Minute).Result()
		if err == nil && !ok {
			err = errors.New("key was taken")
		}
		return err
	}
	begin := func(i int) error {
		got, err := b.coordinator.Begin(ctx, identities[i])
		if err == nil && got.Outcome != operation.BeginAcquired {
			err = fmt.Errorf("begin: %s", got.Outcome)
		}
		leases[i] = got.Lease
		return err
	}
	complete := func(i int) error {
		got, err := b.coordinator.Complete(ctx, leases[i], "receipt")
		if err == nil && got.Outcome != operation.CompleteCompleted {
			err = fmt.Errorf("complete: %s", got.Outcome)
		}
		return err
	}
	// In turns, so that whatever else the machine does falls on all of them.
	const turns = 20
	for turn := range turns {
		from, to := n*turn/turns, n*(turn+1)/turns
		for _, side := range []struct {
			speed *speed
			call  func(int) error
		}{{&r.setnx, setnx}, {&r.begin, begin}, {&r.complete, complete}} {
			if err := side.speed.spread(from, to, side.call); err != nil {
				return r, err
			}
		}
	}
	for _, s := range []*speed{&r.setnx, &r.begin, &r.complete} {
		slices.Sort(s.each)
	}
	return r, nil
}

// spread makes the calls numbered from up to to, with all callers at once.
func (s *speed) spread(from, to int, call func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	each := make([]time.Duration, to-from)
	failures := make([]error, callers)
	start := time.Now()
	for c := range callers {
		all.Go(func() {
			for {
				i := from + int(next.Add(1)) - 1
				if i >= to {
					return
				}
				sent := time.Now()
				if err := call(i); err != nil {
					failures[c] = err
					return
				}
				each[i-from] = time.Since(sent)
			}
		})
	}
	all.Wait()
	s.took += time.Since(start)
	s.each = append(s.each, each...)
	return errors.Join(failures...)
}
