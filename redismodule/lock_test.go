package redismodule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// openServices opens n replicas' services on the server at url, each on the network of
// its own test, and closes them at the end.
func openServices(t testkit.T, n int, config Config, network *faultNet) []*Services {
	t.Helper()
	var all []*Services
	for i := range n {
		c := config
		c.InstanceID = fmt.Sprint("replica-", i)
		if network != nil {
			c.Dial = network.dial
		}
		s, err := Open(c, nil)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		if err := s.Start(t.Context()); err != nil {
			t.Fatalf("start: %v", err)
		}
		all = append(all, s)
	}
	return all
}

// closableLock lets the suite close one client.
type closableLock struct {
	semantic.DistributedLock
	services *Services
}

func (c closableLock) Close() { _ = c.services.Close(context.Background()) }

type closableLease struct {
	semantic.ResourceLease
	services *Services
}

func (c closableLease) Close() { _ = c.services.Close(context.Background()) }

// onServer is a harness that gives every case a namespace of its own on one server.
func onServer[S any](config Config, pick func(*Services) S) testkit.Backend[S] {
	var network *faultNet
	return testkit.Backend[S]{
		New: func(t testkit.T, n int) []S {
			network = newFaultNet()
			c := config
			c.Namespace = "case-" + newToken()
			if c.CommandTimeout == 0 {
				c.CommandTimeout = 500 * time.Millisecond
			}
			var picked []S
			for _, s := range openServices(t, n, c, network) {
				picked = append(picked, pick(s))
			}
			return picked
		},
		Advance: time.Sleep,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return network.inject(f) },
	}
}

func pickLock(s *Services) semantic.DistributedLock { return closableLock{s.Lock, s} }
func pickLease(s *Services) semantic.ResourceLease  { return closableLease{s.Lease, s} }

func TestDistributedLockOnRealRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			testkit.RunDistributedLock(t, onServer(Config{URL: server.URL(), Protocol: protocol}, pickLock))
		})
	}
}

func TestResourceLeaseOnRealRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	testkit.RunResourceLease(t, onServer(Config{URL: server.URL()}, pickLease))
}

// TestAcquireUnderLostAndDelayedReplies makes many acquires while replies are lost and
// delayed at random: nobody is told that its own lock is another's, no two hold one key,
// no key outlives its holder, and a release of one's own lock always frees it.
func TestAcquireUnderLostAndDelayedReplies(t *testing.T) {
	const seed, workers, perWorker, keys = 20261130, 8, 1250, 6
	t.Logf("seed %d", seed)
	server := testkit.StartRedis(t)
	network := newFaultNet()
	services := openServices(t, 2, Config{URL: server.URL(), CommandTimeout: time.Second}, network)
	network.withRandomFaults(seed, 12, 2*time.Millisecond)

	var holders [keys]atomic.Int32
	var acquired, contended, unresolved atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			l := services[w%2].Lock
			for i := range perWorker {
				// Half of the acquires have a key of their own: contention there is false.
				own := i%2 == 0
				k := (w + i) % keys
				key := fmt.Sprint("shared-", k)
				if own {
					key = fmt.Sprintf("own-%d-%d", w, i)
				}
				claim, err := l.Acquire(t.Context(), key, time.Minute)
				switch {
				case claim.Acquired:
					acquired.Add(1)
					if !own && holders[k].Add(1) > 1 {
						t.Errorf("two holders of %s", key)
					}
					if !own {
						holders[k].Add(-1)
					}
					l.Release(t.Context(), key, claim.Token)
				case claim.Reason == semantic.ReasonContended:
					contended.Add(1)
					if own {
						t.Errorf("acquire of %s, which nobody else asks for: CONTENDED", key)
					}
				default:
					unresolved.Add(1)
					if !errors.Is(err, semantic.ErrUnknown) {
						t.Errorf("acquire of %s: %v, want only lost replies", key, err)
					}
				}
			}
		})
	}
	all.Wait()
	network.calm()
	for _, s := range services { // the compensating releases
		s.Lock.compensations.Wait()
	}
	left := server.Must("KEYS", "coord:lock:*}")
	if list, ok := left.([]any); !ok || len(list) != 0 {
		t.Errorf("keys that nobody holds: %v", left)
	}
	t.Logf("acquired %d, contended %d, unresolved %d", acquired.Load(), contended.Load(), unresolved.Load())
	if acquired.Load() < workers*perWorker/2 {
		t.Errorf("only %d of %d acquires succeeded", acquired.Load(), workers*perWorker)
	}
}
