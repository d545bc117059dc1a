// Package clientexportingmodule has the shape of the Redis modules that public fx
// applications share: a constructor for everyone.
package clientexportingmodule

import (
	"context"

	"github.com/redis/go-redis/v9" // want "import"
	"go.uber.org/fx"
)

type Config struct{ Address string }

func NewClient(lc fx.Lifecycle, c Config) *redis.Client { // want "result"
	client := redis.NewClient(&redis.Options{Addr: c.Address})                        // want "result-of-a-call"
	lc.Append(fx.Hook{OnStop: func(context.Context) error { return client.Close() }}) // want "value"
	return client                                                                     // want "value"
}

func Module() fx.Option {
	return fx.Module("redis", fx.Provide(NewClient)) // want "fx"
}
