package dotimport

import (
	. "github.com/redis/go-redis/v9" // want "import"
)

var _ *Client // want "variable"
