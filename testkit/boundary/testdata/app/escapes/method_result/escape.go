package methodresult

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Repository struct{}

func (*Repository) Raw() redis.Cmdable { return nil } // want "result"
