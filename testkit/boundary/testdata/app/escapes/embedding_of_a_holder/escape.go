package embeddingofaholder

import (
	"example.com/app/shared"
)

type Store struct {
	shared.Store // want "embedded"
}
