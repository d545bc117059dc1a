package getterofanallowedpackage

import (
	"github.com/wrkbelt/coord/redismodule"
)

func use() {
	_ = redismodule.Leak() // want "result-of-a-call"
}
