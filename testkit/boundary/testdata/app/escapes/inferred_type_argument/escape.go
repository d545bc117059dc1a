package inferredtypeargument

import (
	"example.com/app/shared"
)

func pass[T any](value T) T { return value }

var stored = pass(shared.Get()) // want "result-of-a-call"
