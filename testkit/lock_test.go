package testkit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// lockDouble is a harness of the double over a controllable clock; wrap, which may be
// nil, breaks the clients.
func lockDouble(wrap func(b *testkit.LockBackend, l *testkit.DistributedLock) semantic.DistributedLock) testkit.Backend[semantic.DistributedLock] {
	clock := testkit.NewClock()
	var backend *testkit.LockBackend
	return testkit.Backend[semantic.DistributedLock]{
		New: func(_ testkit.T, n int) []semantic.DistributedLock {
			backend = testkit.NewLockBackend(clock)
			var ls []semantic.DistributedLock
			for i := range n {
				client := backend.Client(fmt.Sprint("replica-", i))
				if wrap == nil {
					ls = append(ls, client)
				} else {
					ls = append(ls, wrap(backend, client))
				}
			}
			return ls
		},
		Advance: clock.Advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	}
}

func TestDistributedLockDouble(t *testing.T) {
	testkit.RunDistributedLock(t, lockDouble(nil))
}

func TestDistributedLockDoubleOnSystemClock(t *testing.T) {
	var backend *testkit.LockBackend
	testkit.RunDistributedLock(t, testkit.Backend[semantic.DistributedLock]{
		New: func(_ testkit.T, n int) []semantic.DistributedLock {
			backend = testkit.NewLockBackend(nil)
			var ls []semantic.DistributedLock
			for i := range n {
				ls = append(ls, backend.Client(fmt.Sprint("replica-", i)))
			}
			return ls
		},
		Advance: time.Sleep,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	})
}
