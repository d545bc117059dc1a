package redismodule

import (
	"embed"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script loads one embedded Lua file. The files are part of the build, so that a
// missing one is a programming error.
func script(name string) *conn.Script {
	source, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return conn.NewScript(name, string(source))
}
