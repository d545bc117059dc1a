package constraint

import (
	"github.com/redis/go-redis/v9" // want "import"
)

func Use[C interface{ *redis.Client }](client C) {} // want "type-parameter"
