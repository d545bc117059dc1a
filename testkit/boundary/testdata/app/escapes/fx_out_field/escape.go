package fxoutfield

import (
	"github.com/redis/go-redis/v9" // want "import"
	"go.uber.org/fx"
)

type Result struct {
	fx.Out

	Client *redis.Client // want "fx"
}
