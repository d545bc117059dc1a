package mongolog_test

import (
	"testing"

	"github.com/wrkbelt/coord/testkit"
)

func TestLogKeepsTheContract(t *testing.T) {
	onServers(t, func(t *testing.T, s server) { testkit.RunIdempotencyLog(t, backend(t, s)) })
}
