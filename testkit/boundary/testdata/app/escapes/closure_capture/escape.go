package closurecapture

import (
	"example.com/app/shared"
)

func Keep() func() string {
	client := shared.Get() // want "result-of-a-call"
	return func() string {
		v, _ := client.Get(nil, "k").Result() // want "result-of-a-call"
		return v
	}
}
