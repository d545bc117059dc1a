package embedding

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Store struct {
	*redis.Client // want "embedded"
}
