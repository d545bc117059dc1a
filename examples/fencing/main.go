// Fencing shows what a lock alone cannot do, and what its fence is for: a holder is
// paused until its lock has expired and another holder has written; when it wakes up it
// writes too. A resource that remembers the greatest fence refuses that stale write.
//
//	go run ./examples/fencing
//
// With MongoDB the resource is a collection, and the check is mongolog.FenceFilter and
// mongolog.FenceUpdate in the update itself.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

// order is the resource. It takes a write only from the latest holder it has heard of.
type order struct {
	mu    sync.Mutex
	state string
	fence semantic.Fence
}

func (o *order) write(state string, fence semantic.Fence) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fence < o.fence {
		return false
	}
	o.state, o.fence = state, fence
	return true
}

func run(ctx context.Context) error {
	redis, err := testkit.LaunchEmbeddedRedis()
	if err != nil {
		return err
	}
	defer redis.Close()
	services, err := redismodule.Open(redismodule.Config{URL: redis.URL()}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = services.Close(ctx) }()

	o := &order{state: "new"}
	first, err := services.Lock.Acquire(ctx, "order:o1", 100*time.Millisecond)
	if err != nil {
		return err
	}
	fmt.Println("first holder has the lock and is paused")

	second, err := services.Lock.Acquire(ctx, "order:o1", time.Minute, semantic.WithWait(5*time.Second))
	if err != nil || !second.Acquired {
		return fmt.Errorf("second holder: %+v, %w", second, err)
	}
	fmt.Println("its lock expired; second holder has a greater fence:", second.Fence > first.Fence)
	fmt.Println("second holder writes paid:", o.write("paid", second.Fence))
	fmt.Println("first holder wakes up and writes cancelled:", o.write("cancelled", first.Fence))
	fmt.Println("order is", o.state)
	return nil
}
