package blankimport

import (
	_ "github.com/redis/go-redis/v9" // want "import"
)
