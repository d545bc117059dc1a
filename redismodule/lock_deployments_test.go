package redismodule

import (
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// The suites of lock and lease on every other deployment that the configuration knows.

func TestLockAndLeaseOnEmbeddedRedis(t *testing.T) {
	server := testkit.StartEmbeddedRedis(t)
	onDeployment(t, Config{URL: server.URL(), Protocol: 2})
}

func TestLockAndLeaseBehindSentinel(t *testing.T) {
	s := testkit.StartSentinel(t)
	onDeployment(t, Config{Mode: Sentinel, Addresses: s.Addrs(), MasterName: s.MasterName})
}

func TestLockAndLeaseOnCluster(t *testing.T) {
	c := testkit.StartRedisCluster(t)
	onDeployment(t, Config{Mode: Cluster, Addresses: c.Addrs()})
}

func onDeployment(t *testing.T, config Config) {
	t.Helper()
	t.Run("lock", func(t *testing.T) { testkit.RunDistributedLock(t, onServer(config, pickLock)) })
	t.Run("lease", func(t *testing.T) { testkit.RunResourceLease(t, onServer(config, pickLease)) })
}

// TestFenceGrowsAcrossWhatAFailoverLoses: the replica that takes over knows neither the
// lock nor the counter of a fence that was not replicated, and still gives out a greater
// one, because fences come from the server's clock.
func TestFenceGrowsAcrossWhatAFailoverLoses(t *testing.T) {
	s := testkit.StartSentinel(t)
	lock := openServices(t, 1, Config{Mode: Sentinel, Addresses: s.Addrs(), MasterName: s.MasterName}, nil)[0].Lock
	first, err := lock.Acquire(t.Context(), "k", time.Second)
	if err != nil || !first.Acquired {
		t.Fatalf("acquire: %+v, %v", first, err)
	}
	s.Crash()
	var second semantic.LockClaim
	for deadline := time.Now().Add(30 * time.Second); !second.Acquired && time.Now().Before(deadline); {
		second, _ = lock.Acquire(t.Context(), "k", 100*time.Millisecond, semantic.WithWait(time.Second))
	}
	if !second.Acquired || second.Fence <= first.Fence {
		t.Errorf("after the failover: %+v, want a fence above %d", second, first.Fence)
	}
}

// TestFenceGrowsAcrossAClockStepBack: the counter takes over where the clock fails.
func TestFenceGrowsAcrossAClockStepBack(t *testing.T) {
	clock := testkit.NewClock()
	server := testkit.StartEmbeddedRedis(t, testkit.WithClock(clock))
	lock := openServices(t, 1, Config{URL: server.URL(), Protocol: 2}, nil)[0].Lock
	last := semantic.Fence(0)
	for i := range 4 {
		claim := mustHold(t, lock, "k")
		if claim.Fence <= last {
			t.Errorf("fence %d after step %d, want more than %d", claim.Fence, i, last)
		}
		last = claim.Fence
		lock.Release(t.Context(), "k", claim.Token)
		clock.Advance(-time.Hour)
	}
}

// TestTTLIsJudgedByTheServersClock: ShedLock#231, replicas whose clocks differ by minutes.
func TestTTLIsJudgedByTheServersClock(t *testing.T) {
	clock := testkit.NewClock() // months apart from this process's
	server := testkit.StartEmbeddedRedis(t, testkit.WithClock(clock))
	services := openServices(t, 2, Config{URL: server.URL(), Protocol: 2}, nil)
	mustHold(t, services[0].Lock, "k")
	clock.Advance(59 * time.Second)
	if claim, err := services[1].Lock.Acquire(t.Context(), "k", time.Minute); err != nil || claim.Acquired || claim.RetryAfter != time.Second {
		t.Errorf("a second before expiry: %+v, %v, want CONTENDED for a second", claim, err)
	}
	clock.Advance(time.Second)
	mustHold(t, services[1].Lock, "k")
}

func mustHold(t *testing.T, lock semantic.DistributedLock, key string) semantic.LockClaim {
	t.Helper()
	claim, err := lock.Acquire(t.Context(), key, time.Minute)
	if err != nil || !claim.Acquired {
		t.Fatalf("acquire of %q: %+v, %v", key, claim, err)
	}
	return claim
}
