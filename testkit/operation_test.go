package testkit_test

import (
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func operationDouble(clock *testkit.Clock) testkit.Backend[operation.Coordinator] {
	var backend *testkit.OperationBackend
	b := testkit.Backend[operation.Coordinator]{
		New: func(_ testkit.T, n int) []operation.Coordinator {
			backend = testkit.NewOperationBackend(nil)
			if clock != nil {
				backend = testkit.NewOperationBackend(clock)
			}
			var cs []operation.Coordinator
			for range n {
				cs = append(cs, backend.Client(testkit.OperationLease, testkit.OperationRetention))
			}
			return cs
		},
		Advance: time.Sleep,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	}
	if clock != nil {
		b.Advance = clock.Advance
	}
	return b
}

func TestOperationCoordinatorDouble(t *testing.T) {
	testkit.RunOperationCoordinator(t, operationDouble(testkit.NewClock()))
}

func TestOperationCoordinatorDoubleOnSystemClock(t *testing.T) {
	t.Parallel()
	testkit.RunOperationCoordinator(t, operationDouble(nil))
}
