package constructorresult

import (
	"github.com/redis/go-redis/v9" // want "import"
)

func New() (client *redis.Client, err error) { return nil, nil } // want "result"
