package fxinvokeliteral

import (
	"github.com/redis/go-redis/v9" // want "import"
	"go.uber.org/fx"
)

var Module = fx.Invoke(func(client redis.Cmdable) {}) // want "fx"
