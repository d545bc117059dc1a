package testfile

import (
	"testing"

	"github.com/redis/go-redis/v9" // want "import"
)

func TestFlush(t *testing.T) {
	_ = redis.NewClient(nil) // want "result-of-a-call"
}
