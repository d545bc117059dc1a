package testkit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// limiterDouble is a harness of the double on clock, advanced by advance.
func limiterDouble(clock semantic.Clock, advance func(time.Duration), lacks ...testkit.Need) testkit.Backend[semantic.RateLimiter] {
	var backend *testkit.LimiterBackend
	return testkit.Backend[semantic.RateLimiter]{
		New: func(_ testkit.T, n int) []semantic.RateLimiter {
			backend = testkit.NewLimiterBackend(clock)
			var ls []semantic.RateLimiter
			for i := range n {
				ls = append(ls, backend.Client(fmt.Sprint("replica-", i)))
			}
			return ls
		},
		Advance: advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
		Lacks:   lacks,
	}
}

func TestRateLimiterDouble(t *testing.T) {
	clock := testkit.NewClock()
	testkit.RunRateLimiter(t, limiterDouble(clock, clock.Advance))
}

func TestRateLimiterDoubleOnSystemClock(t *testing.T) {
	testkit.RunRateLimiter(t, limiterDouble(nil, time.Sleep, testkit.NeedStillClock))
}
