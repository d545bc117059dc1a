package typeargument

import (
	"github.com/redis/go-redis/v9" // want "import"
)

func pass[T any](value T) T { return value }

var get = pass[*redis.Client] // want "type-argument"
