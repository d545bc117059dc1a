package clientbuiltinconsumer

import (
	"github.com/redis/go-redis/v9" // want "import"
)

func use() {
	_ = redis.NewClient(&redis.Options{}) // want "result-of-a-call"
}
