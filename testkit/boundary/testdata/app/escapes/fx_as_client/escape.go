package fxasclient

import (
	"github.com/redis/go-redis/v9" // want "import"
	"go.uber.org/fx"
)

var Module = fx.Annotate(nil, fx.As(new(redis.Cmdable))) // want "fx"
