package testkit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/testkit"
)

func TestAPairFailsOverToItsReplica(t *testing.T) {
	p := testkit.StartRedisPair(t, testkit.WithRedisPassword("secret"))
	old := p.Primary
	old.Must("SET", "k", "v")
	p.Sync()
	_, err := p.Replica.Command(t.Context(), "SET", "k", "w")
	var refusal *testkit.RedisError
	if !errors.As(err, &refusal) || !strings.HasPrefix(refusal.Message, "READONLY") {
		t.Errorf("write to the replica: %v, want READONLY", err)
	}
	p.Failover()
	if p.Primary == old {
		t.Fatal("the primary is the same")
	}
	if got := p.Primary.Must("GET", "k"); got != "v" {
		t.Errorf("value after the failover = %v", got)
	}
	p.Primary.Must("SET", "k", "w")
}

func TestAPairSwitchesRolesWithoutLoss(t *testing.T) {
	p := testkit.StartRedisPair(t)
	for i := range 3 {
		p.Primary.Must("INCR", "k")
		p.SwitchRoles()
		if got := p.Primary.Must("GET", "k"); got != fmt.Sprint(i+1) {
			t.Fatalf("value after switch %d = %v", i+1, got)
		}
		if _, err := p.Replica.Command(t.Context(), "INCR", "k"); err == nil {
			t.Fatal("the old primary still takes writes")
		}
	}
}

func TestSentinelsMoveThePrimary(t *testing.T) {
	s := testkit.StartSentinel(t)
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()})
	defer c.Close()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Servers.Sync()
	old := s.Servers.Primary
	s.Failover()
	if s.Servers.Primary == old {
		t.Fatal("the primary is the same")
	}
	eventually(t, "the client finds the new primary", func() bool { return c.Set(t.Context(), "k", "w", 0).Err() == nil })
	if got := s.Servers.Primary.Must("GET", "k"); got != "w" {
		t.Errorf("value on the new primary = %v", got)
	}
}

func TestSentinelsReplaceAKilledPrimary(t *testing.T) {
	s := testkit.StartSentinel(t)
	s.Servers.Primary.Must("SET", "k", "v")
	s.Servers.Sync()
	s.Crash()
	if got := s.Servers.Primary.Must("GET", "k"); got != "v" {
		t.Errorf("value after the crash = %v", got)
	}
}

func TestAClusterServesEverySlot(t *testing.T) {
	cl := testkit.StartRedisCluster(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()[:1]})
	defer c.Close()
	served := map[*testkit.RedisServer]bool{}
	for i := range 60 {
		key := fmt.Sprint("k", i)
		if err := c.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		n := cl.NodeOf(key)
		if got := n.Must("GET", key); got != fmt.Sprint(i) {
			t.Fatalf("node of %s has %v", key, got)
		}
		served[n] = true
	}
	if len(served) != 3 {
		t.Errorf("keys went to %d nodes, want 3", len(served))
	}
}

func TestDeploymentsStartWithoutATest(t *testing.T) {
	testkit.RequireProgram(t, "redis-server", "see README")
	pair, err := testkit.LaunchRedisPair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pair.Stop()
	sentinel, err := testkit.LaunchSentinel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sentinel.Stop()
}
