package fxinfield

import (
	"github.com/redis/go-redis/v9" // want "import"
	"go.uber.org/fx"
)

type Params struct {
	fx.In

	Client *redis.Client // want "fx"
}
