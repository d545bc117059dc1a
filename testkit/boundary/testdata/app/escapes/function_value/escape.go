package functionvalue

import (
	"example.com/app/shared"
)

var get = shared.Get // want "function-value"
