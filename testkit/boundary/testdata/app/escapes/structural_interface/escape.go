package structuralinterface

import (
	"github.com/gomodule/redigo/redis" // want "import"
)

type doer interface {
	Do(command string, args ...any) (any, error)
}

func New() doer { return redis.Dial("") } // want "result-of-a-call"
