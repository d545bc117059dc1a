package inferredlocal

import (
	"example.com/app/shared"
)

func use() {
	client := shared.Get() // want "result-of-a-call"
	_ = client             // want "value"
}
