package testkit_test

import (
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// leaseDouble is a harness of the double over a controllable clock; wrap, which may
// be nil, breaks the clients.
func leaseDouble(clock semantic.Clock, advance func(time.Duration), wrap func(b *testkit.LeaseBackend, l *testkit.ResourceLease) semantic.ResourceLease) testkit.Backend[semantic.ResourceLease] {
	var backend *testkit.LeaseBackend
	return testkit.Backend[semantic.ResourceLease]{
		New: func(_ testkit.T, n int) []semantic.ResourceLease {
			backend = testkit.NewLeaseBackend(clock)
			var ls []semantic.ResourceLease
			for range n {
				client := backend.Client()
				if wrap == nil {
					ls = append(ls, client)
				} else {
					ls = append(ls, wrap(backend, client))
				}
			}
			return ls
		},
		Advance: advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	}
}

func TestResourceLeaseDouble(t *testing.T) {
	clock := testkit.NewClock()
	testkit.RunResourceLease(t, leaseDouble(clock, clock.Advance, nil))
}

func TestResourceLeaseDoubleOnSystemClock(t *testing.T) {
	testkit.RunResourceLease(t, leaseDouble(nil, time.Sleep, nil))
}
