package channelandmap

import (
	"github.com/redis/go-redis/v9" // want "import"
)

var pools map[string]chan *redis.Client // want "variable"
