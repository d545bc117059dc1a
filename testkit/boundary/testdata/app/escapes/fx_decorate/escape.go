package fxdecorate

import (
	"github.com/redis/go-redis/v9" // want "import"
	"go.uber.org/fx"
)

var Module = fx.Decorate(func(client *redis.Client) *redis.Client { return client }) // want "fx"
