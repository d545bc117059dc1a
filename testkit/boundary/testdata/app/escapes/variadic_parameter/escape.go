package variadicparameter

import (
	"github.com/redis/go-redis/v9" // want "import"
)

func New(clients ...redis.Cmdable) {} // want "parameter"
