package alias

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Store = redis.Client // want "alias"

func New(store *Store) {} // want "parameter"
