package fxprovideliteral

import (
	"github.com/redis/go-redis/v9" // want "import"
	"go.uber.org/fx"
)

var Module = fx.Provide(
	func(client *redis.Client) int { return 0 }, // want "fx"
)
