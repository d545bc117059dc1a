package declaredtype

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Store redis.Client // want "declared-type"
