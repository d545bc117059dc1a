package returnedasany

import (
	"github.com/redis/go-redis/v9" // want "import"
)

func Client() any { return redis.NewClient(nil) } // want "result-of-a-call"
