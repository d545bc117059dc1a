package providerparameter

import (
	"github.com/redis/go-redis/v9" // want "import"
)

func New(client func() *redis.Client) {} // want "parameter"
