package typeassertion

import (
	"github.com/redis/go-redis/v9" // want "import"
)

func use(v any) {
	_, _ = v.(interface{ Close() error })
	_, _ = v.(*redis.Client) // want "type-assertion"
}
