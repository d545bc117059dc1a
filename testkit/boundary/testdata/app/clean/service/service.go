// Package service uses Coord as it is meant to be.
package service

import (
	"context"

	"example.com/app/clean/redis"
	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
	"go.uber.org/fx"
)

// Bookings takes contracts.
type Bookings struct {
	lock     semantic.DistributedLock
	services *redismodule.Services // without fx: it hides its connections
	owner    redis.Client
}

// New has only contracts for parameters.
func New(lock semantic.DistributedLock, limiter semantic.RateLimiter) *Bookings {
	return &Bookings{lock: lock}
}

// Main wires.
func Main() *fx.App {
	return fx.New(
		coordfx.Module,
		fx.Supply(coordfx.Config{Redis: redismodule.Config{URL: "redis://localhost:6379"}}),
		fx.Provide(New),
		fx.Replace(fx.Annotate(fake{}, fx.As(new(semantic.DistributedLock)))),
	)
}

type fake struct{}

func (fake) TryAcquire(context.Context, string) (bool, error) { return true, nil }
