package operationstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// dialThrough dials each of servers through a proxy of its own, and everything else, such
// as sentinels, directly.
func dialThrough(t *testing.T, servers ...*testkit.RedisServer) (dial func(ctx context.Context, network, address string) (net.Conn, error), inject func(testkit.T, testkit.Fault) func()) {
	proxies := map[string]*testkit.Proxy{}
	for _, s := range servers {
		proxies[s.Addr()] = testkit.StartProxy(t, s.Addr())
	}
	dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if p := proxies[address]; p != nil {
			address = p.Addr()
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	inject = func(t testkit.T, f testkit.Fault) func() {
		var heals []func()
		for _, p := range proxies {
			heals = append(heals, p.Inject(t, f))
		}
		return func() {
			for _, heal := range heals {
				heal()
			}
		}
	}
	return dial, inject
}

// suiteOnDeployment runs the conformance suite on a started coordinator of redis.
func suiteOnDeployment(t *testing.T, redis redismodule.Config, servers ...*testkit.RedisServer) {
	t.Helper()
	var inject func(testkit.T, testkit.Fault) func()
	redis.Dial, inject = dialThrough(t, servers...)
	testkit.RunOperationCoordinator(t, testkit.Backend[operation.Coordinator]{
		New: func(t testkit.T, n int) []operation.Coordinator {
			for _, s := range servers {
				if role := s.Must("ROLE").([]any)[0]; role == "master" {
					s.Must("FLUSHALL")
				}
			}
			cs := make([]operation.Coordinator, n)
			for i := range cs {
				cs[i] = startOn(t, redis, lease(testkit.OperationLease), retention(testkit.OperationRetention))
			}
			return cs
		},
		Advance: time.Sleep,
		Fault:   inject,
	})
}

// startOn opens and starts a coordinator that ends with the test.
func startOn(t testkit.T, redis redismodule.Config, changes ...func(*Config)) *Opened {
	t.Helper()
	o := open(t, "", append([]func(*Config){func(c *Config) {
		c.Redis, c.ClusterValidated = redis, redis.Mode == redismodule.Cluster
	}}, changes...)...)
	if err := o.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	return o
}

func TestOperationCoordinatorOnCluster(t *testing.T) {
	cluster := testkit.StartRedisCluster(t)
	redis := redismodule.Config{Mode: redismodule.Cluster, Addresses: cluster.Addrs()}
	suiteOnDeployment(t, redis, cluster.Nodes...)

	// The records are on all three, each with what is beside it.
	o := startOn(t, redis)
	for i := range 60 {
		l := begin(t, o, identity(fmt.Sprint("spread-", i)), operation.BeginAcquired).Lease
		if r, err := o.Abandon(t.Context(), l); err != nil || r.Outcome != operation.AbandonAbandoned {
			t.Fatalf("abandon: %+v, %v", r, err)
		}
		complete(t, o, begin(t, o, l.Identity, operation.BeginAcquired).Lease, "ref", operation.CompleteCompleted)
	}
	for _, n := range cluster.Nodes {
		if keys := n.Must("DBSIZE").(int64); keys < 2 {
			t.Errorf("%s holds %d keys of 60 operations", n.Addr(), keys)
		}
	}
}

// A node that hands a slot over redirects before it runs anything, and the record goes on
// where it is.
func TestAMovedSlotIsFollowed(t *testing.T) {
	cluster := testkit.StartRedisCluster(t)
	o := startOn(t, redismodule.Config{Mode: redismodule.Cluster, Addresses: cluster.Addrs()})
	id := identity("moved")
	key := operation.RecordKey("coord", id)
	l := begin(t, o, id, operation.BeginAcquired).Lease
	from := cluster.NodeOf(key)
	to := cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	slot := from.Must("CLUSTER", "KEYSLOT", key)
	nodeID := func(s *testkit.RedisServer) any { return s.Must("CLUSTER", "MYID") }
	to.Must("CLUSTER", "SETSLOT", slot, "IMPORTING", nodeID(from))
	from.Must("CLUSTER", "SETSLOT", slot, "MIGRATING", nodeID(to))
	host, port, _ := net.SplitHostPort(to.Addr())
	from.Must("MIGRATE", host, port, key, 0, 5000)
	// Between the two the server asks for another try, and nothing was written.
	_, err := o.Renew(t.Context(), l)
	var rejected *operation.RejectedError
	if err != nil && (!errors.As(err, &rejected) || class(err) != "rejected") {
		t.Fatalf("renew amid a migration: %v", err)
	}
	for _, n := range []*testkit.RedisServer{to, from} {
		n.Must("CLUSTER", "SETSLOT", slot, "NODE", nodeID(to))
	}
	until(t, func() bool {
		r, err := o.Renew(t.Context(), l)
		if err != nil && class(err) != "rejected" {
			t.Fatalf("renew after the migration: %v", err)
		}
		return err == nil && r.Outcome == operation.RenewRenewed
	})
	complete(t, o, l, "ref", operation.CompleteCompleted)
	if to.Must("GET", key) == nil {
		t.Error("the record is not where its slot is")
	}
}

func TestOperationCoordinatorBehindSentinel(t *testing.T) {
	s := testkit.StartSentinel(t)
	redis := redismodule.Config{Mode: redismodule.Sentinel, Addresses: s.Addrs(), MasterName: s.MasterName}
	servers := []*testkit.RedisServer{s.Servers.Primary, s.Servers.Replica}
	t.Run("before", func(t *testing.T) { suiteOnDeployment(t, redis, servers...) })

	o := startOn(t, redis, lease(time.Minute))
	held := begin(t, o, identity("held"), operation.BeginAcquired).Lease
	done := begin(t, o, identity("done"), operation.BeginAcquired).Lease
	complete(t, o, done, "ref", operation.CompleteCompleted)
	s.Servers.Sync()

	// Callers go on throughout the failover. What they are told is never a guess: an
	// outcome, or an error that says that nothing was written; unknown only what was on
	// its way when the sentinel cut the old primary's connections.
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	var mu sync.Mutex
	classes := map[string]int{}
	for caller := range 4 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := o.ReadStatus(ctx, held.Identity)
				if ctx.Err() != nil {
					return
				}
				if c := class(err); c != "known" && c != "rejected" && c != "unavailable" {
					t.Errorf("readStatus amid the failover: %v", err)
				}
				_, err = o.Begin(ctx, identity(fmt.Sprint("amid-", caller, "-", n)))
				mu.Lock()
				if ctx.Err() == nil {
					classes[class(err)]++
				}
				mu.Unlock()
			}
		})
	}
	former := s.Servers.Primary
	s.Failover()
	stop()
	callers.Wait()
	t.Logf("begins amid the failover: %v", classes)
	if classes["unclassified"] > 0 || classes["invalid"] > 0 || classes["known"] == 0 {
		t.Errorf("begins amid the failover: %v", classes)
	}

	// The new primary has the records, and the coordinator finds it.
	until(t, func() bool {
		r, err := o.Renew(t.Context(), held)
		if err != nil && class(err) == "unknown" {
			t.Errorf("renew after the failover: %v", err)
		}
		return err == nil && r.Outcome == operation.RenewRenewed
	})
	if r := begin(t, o, done.Identity, operation.BeginCompleted); r.ResultRef != "ref" {
		t.Errorf("completed with %q", r.ResultRef)
	}
	complete(t, o, held, "ref-2", operation.CompleteCompleted)

	// Whoever still talks to the former one is refused: nothing is written there.
	refused := open(t, former.Addr())
	_, err := refused.Begin(t.Context(), identity("former"))
	var rejected *operation.RejectedError
	if !errors.As(err, &rejected) || class(err) != "rejected" {
		t.Errorf("begin on the former primary: %v, want rejected", err)
	}
	t.Run("after", func(t *testing.T) { suiteOnDeployment(t, redis, servers...) })
}

// A server that takes writes need not be a primary: a replica can be made writable. No
// command goes over a connection whose server has not said that it is one, whether Start
// has asked that server or, after a failover, another.
func TestNoCommandGoesToAServerThatIsNoPrimary(t *testing.T) {
	primary, replica := testkit.StartRedis(t), testkit.StartRedis(t, testkit.WithRedisConfig("replica-read-only", "no"))
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica.Must("REPLICAOF", host, port)
	replica.Must("SET", "writable", "yes")

	address := primary.Addr() // of what the deployment's name stands for
	var mu sync.Mutex
	o := open(t, primary.Addr(), func(c *Config) {
		c.Redis.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := begin(t, o, identity("moved"), operation.BeginAcquired).Lease
	mu.Lock()
	address = replica.Addr()
	mu.Unlock()
	primary.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	until(t, func() bool { // a connection that was cut may still be met
		_, err := o.ReadStatus(t.Context(), l.Identity)
		return class(err) == "rejected"
	})
	for name, err := range everyCommand(t, o, l) {
		var rejected *operation.RejectedError
		if !errors.As(err, &rejected) || rejected.Code != "READONLY" || !strings.Contains(err.Error(), "not a primary") {
			t.Errorf("%s: %v, want rejected with READONLY", name, err)
		}
	}
	key := operation.RecordKey("coord", l.Identity)
	if got, want := replica.Must("GET", key), primary.Must("GET", key); got != nil && got != want {
		t.Errorf("the replica was written to: %v, the primary has %v", got, want)
	}
}

// The sentinels' own word is not taken for it either.
func TestAPrimaryThatSentinelsNameIsAskedForItsRole(t *testing.T) {
	s := testkit.StartSentinel(t)
	redis := redismodule.Config{Mode: redismodule.Sentinel, Addresses: s.Addrs(), MasterName: s.MasterName}
	o := open(t, "", func(c *Config) { c.Redis = redis })
	s.Servers.Primary.Must("CONFIG", "SET", "replica-read-only", "no")
	s.Servers.Primary.Must("REPLICAOF", "127.0.0.1", "1") // the sentinels need seconds to see it
	_, err := o.Begin(t.Context(), identity("named"))
	var rejected *operation.RejectedError
	if !errors.As(err, &rejected) || rejected.Code != "READONLY" {
		t.Fatalf("begin: %v, want rejected with READONLY", err)
	}
}
