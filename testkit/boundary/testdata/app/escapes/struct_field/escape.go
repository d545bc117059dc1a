package structfield

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Service struct {
	client *redis.Client // want "field"
}
