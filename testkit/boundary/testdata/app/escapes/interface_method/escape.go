package interfacemethod

import (
	"context"
	"github.com/redis/go-redis/v9" // want "import"
)

type Commands interface {
	Get(ctx context.Context, key string) *redis.StringCmd // want "interface-method"
}
