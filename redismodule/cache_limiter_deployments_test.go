package redismodule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestCacheAndLimiterOnCluster(t *testing.T) {
	c := testkit.StartRedisCluster(t)
	config := Config{Mode: Cluster, Addresses: c.Addrs(), CommandTimeout: patient}
	t.Run("cache", func(t *testing.T) { testkit.RunRemoteCacheProvider(t, onServer(config, pickCache)) })
	t.Run("limiter", func(t *testing.T) {
		b := onServer(config, pickLimiter)
		b.Lacks = []testkit.Need{testkit.NeedStillClock}
		testkit.RunRateLimiter(t, b)
	})
	// Every call goes to the right node at once.
	t.Run("no call is redirected", func(t *testing.T) {
		s := openServices(t, 1, config, nil)[0]
		keys := make([]string, 60)
		for i := range keys {
			keys[i] = fmt.Sprint("key-", i)
		}
		use := func() {
			for _, key := range keys {
				_, _, _ = s.Cache.Get(t.Context(), key)
				_ = s.Cache.Set(t.Context(), key, []byte("v"), time.Minute)
				_, _ = s.Cache.Touch(t.Context(), key, time.Minute)
				_, _ = s.Cache.GetOrFetch(t.Context(), key+"-other", time.Minute, fetchOf("v"))
				_, _ = s.Limiter.TryAcquire(t.Context(), key, 1, semantic.PerMinute(5))
			}
			if err := s.Cache.Delete(t.Context(), keys...); err != nil {
				t.Errorf("Delete on Cluster: %v", err)
			}
		}
		use()
		seen := map[string]bool{}
		for _, key := range keys {
			node := c.NodeOf(s.Cache.valueKey(key))
			if stats := fmt.Sprint(node.Must("INFO", "errorstats")); strings.Contains(stats, "MOVED") && !seen[node.Addr()] {
				seen[node.Addr()] = true
				t.Errorf("%s redirected calls: %s", node.Addr(), stats)
			}
			if _, found, err := s.Cache.Get(t.Context(), key); found || err != nil {
				t.Errorf("%s: found %v, %v after Delete of many keys", key, found, err)
			}
		}
	})
}
