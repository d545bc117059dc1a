package constructorparameter

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Service struct{}

func New(client *redis.Client) *Service { return nil } // want "parameter"
