package testkit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// cacheDouble is a harness of the double on clock, advanced by advance.
func cacheDouble(clock semantic.Clock, advance func(time.Duration)) testkit.Backend[semantic.RemoteCacheProvider] {
	var backend *testkit.CacheBackend
	return testkit.Backend[semantic.RemoteCacheProvider]{
		New: func(t testkit.T, n int) []semantic.RemoteCacheProvider {
			backend = testkit.NewCacheBackend(clock)
			var cs []semantic.RemoteCacheProvider
			for i := range n {
				c := backend.Client(fmt.Sprint("replica-", i))
				t.Cleanup(c.Close)
				cs = append(cs, c)
			}
			return cs
		},
		Advance: advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	}
}

func TestRemoteCacheProviderDouble(t *testing.T) {
	clock := testkit.NewClock()
	testkit.RunRemoteCacheProvider(t, cacheDouble(clock, clock.Advance))
}

func TestRemoteCacheProviderDoubleOnSystemClock(t *testing.T) {
	testkit.RunRemoteCacheProvider(t, cacheDouble(nil, time.Sleep))
}
