package conn

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
)

// The commands that call a script by its digest and by its source, boxed once.
var evalsha, eval any = "evalsha", "eval"

// Script is one Lua script, named by its digest once a server knows it.
type Script struct {
	Name   string
	source any // strings, boxed once
	digest any
}

// NewScript prepares source.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return &Script{Name: name, source: source, digest: hex.EncodeToString(sum[:])}
}
