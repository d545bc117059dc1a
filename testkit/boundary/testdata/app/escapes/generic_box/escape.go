package genericbox

import (
	"github.com/redis/go-redis/v9" // want "import"
)

type Box[T any] struct{ value T }

func New(box Box[*redis.Client]) {} // want "type-argument"
