package linkname

import _ "unsafe"

//go:linkname leak github.com/wrkbelt/coord/redismodule.leak
func leak() uintptr // want-above "linkname"
