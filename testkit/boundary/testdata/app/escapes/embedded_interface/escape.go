package embeddedinterface

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Commands interface {
	redis.Cmdable // want "embedded"
}
