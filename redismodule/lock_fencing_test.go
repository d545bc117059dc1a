package redismodule

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// account is a resource that several holders update by reading, thinking and writing.
type account struct {
	mu      sync.Mutex
	balance int
	fence   semantic.Fence // the greatest one that has written
	fenced  bool           // whether it refuses older ones
}

func (a *account) read() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance
}

// write stores balance and tells whether the resource took it.
func (a *account) write(balance int, fence semantic.Fence) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fenced && fence < a.fence {
		return false
	}
	a.balance, a.fence = balance, fence
	return true
}

// TestLostUpdatesWithAndWithoutTheFence: one holder in ten is paused for longer than its
// lock lives, as by a garbage collection or a suspended machine, and does not look at its
// context afterwards. The lock alone does not save the updates of its successors; the
// resource that looks at the fence loses none.
func TestLostUpdatesWithAndWithoutTheFence(t *testing.T) {
	const workers, each, ttl, nap = 4, 50, 40 * time.Millisecond, 100 * time.Millisecond
	server := testkit.StartRedis(t)
	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprintf("fenced=%v", fenced), func(t *testing.T) {
			services := openServices(t, workers, Config{URL: server.URL(), Namespace: fmt.Sprint("fenced-", fenced)}, nil)
			a := &account{fenced: fenced}
			var took, refused atomic.Int64
			var all sync.WaitGroup
			for w, s := range services {
				all.Go(func() {
					for i := range each {
						_, _ = s.Lock.WithLock(t.Context(), "account", ttl, func(ctx context.Context) error {
							fence, _ := semantic.FenceFromContext(ctx)
							balance := a.read()
							if (w+i)%10 == 0 {
								pause(t.Context(), nap)
							}
							if a.write(balance+1, fence) {
								took.Add(1)
							} else {
								refused.Add(1)
							}
							return nil
						}, semantic.WithWait(time.Minute))
					}
				})
			}
			all.Wait()
			lost := took.Load() - int64(a.read())
			t.Logf("%d updates taken, %d refused, %d lost", took.Load(), refused.Load(), lost)
			switch {
			case fenced && lost != 0:
				t.Errorf("%d updates were lost although the resource looks at the fence", lost)
			case !fenced && lost == 0:
				t.Error("no update was lost without the fence: the workload does not show what it is for")
			}
		})
	}
}
