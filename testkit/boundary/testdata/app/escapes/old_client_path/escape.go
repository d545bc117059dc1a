package oldclientpath

import (
	"github.com/go-redis/redis/v8" // want "import"
)

func New(client *redis.Client) {} // want "parameter"
