package namedfunctiontype

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Option func(*redis.Options) // want "parameter"
