package otherclients

import (
	"github.com/gomodule/redigo/redis"      // want "import"
	"github.com/mediocregopher/radix/v4"    // want "import"
	"github.com/redis/rueidis"              // want "import"
	valkey "github.com/valkey-io/valkey-go" // want "import"
)

func New(
	a rueidis.Client, // want "parameter"
	b valkey.Client, // want "parameter"
	c radix.Client, // want "parameter"
	d *redis.Pool, // want "parameter"
) {
}
