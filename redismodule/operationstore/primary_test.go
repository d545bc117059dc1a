package operationstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// opaque hides what kind of client it is.
type opaque struct{ redis.UniversalClient }

// prefixing is a hook that puts a prefix before the keys of scripts.
type prefixing struct{}

func (prefixing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (prefixing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (prefixing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && strings.HasPrefix(strings.ToLower(fmt.Sprint(args[0])), "eval") {
			args[3] = "app:" + fmt.Sprint(args[3])
		}
		return next(ctx, cmd)
	}
}

// go-redis#2339, #1551, redis-rb#668, redis-py PR#3559: a retry after EOF or a timeout
// can run a command twice, so a client that retries is refused.
func TestTheTransportAcceptsAProvenPrimaryOnly(t *testing.T) {
	primary, replica := testkit.StartRedis(t), testkit.StartRedis(t)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica.Must("REPLICAOF", host, port)
	once := func(addr string) *redis.Options {
		return &redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: time.Second, DialerRetries: 1}
	}
	cluster := func(change func(*redis.ClusterOptions)) redis.UniversalClient {
		o := &redis.ClusterOptions{Addrs: []string{primary.Addr()}, MaxRetries: -1, ContextTimeoutEnabled: true}
		change(o)
		return redis.NewClusterClient(o)
	}
	hooked := redis.NewClient(once(primary.Addr()))
	hooked.AddHook(prefixing{})
	for _, c := range []struct {
		name             string
		client           redis.UniversalClient
		clusterValidated bool
		refused          string // part of the reason, "" when it is accepted
	}{
		{"primary", redis.NewClient(once(primary.Addr())), false, ""},
		{"replica", redis.NewClient(once(replica.Addr())), false, "not a primary"},
		{"retrying by default", redis.NewClient(&redis.Options{Addr: primary.Addr(), ContextTimeoutEnabled: true}), false, "resends"},
		{"retrying once", redis.NewClient(&redis.Options{Addr: primary.Addr(), MaxRetries: 1, ContextTimeoutEnabled: true}), false, "resends"},
		{"deaf to deadlines", redis.NewClient(&redis.Options{Addr: primary.Addr(), MaxRetries: -1}), false, "deadlines"},
		{"ring", redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": primary.Addr()}, MaxRetries: -1}), false, "ring"},
		{"uninspectable", opaque{redis.NewClient(once(primary.Addr()))}, false, "cannot be inspected"},
		{"prefixing hook", hooked, false, "rewrites keys"},
		{"unreachable", redis.NewClient(once("127.0.0.1:1")), false, "cannot be reached"},
		{"cluster", cluster(func(*redis.ClusterOptions) {}), false, "not been validated"},
		{"validated cluster", cluster(func(*redis.ClusterOptions) {}), true, "-"}, // the options pass; no cluster runs here
		{"read-only cluster", cluster(func(o *redis.ClusterOptions) { o.ReadOnly = true }), true, "read-only"},
		{"latency routing", cluster(func(o *redis.ClusterOptions) { o.RouteByLatency = true }), true, "read-only"},
		{"random routing", cluster(func(o *redis.ClusterOptions) { o.RouteRandomly = true }), true, "read-only"},
		{"retrying cluster", cluster(func(o *redis.ClusterOptions) { o.MaxRetries = 2 }), true, "resends"},
		{"failover client on a replica", redis.NewFailoverClusterClient(&redis.FailoverOptions{
			MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, RouteByLatency: true, MaxRetries: -1, ContextTimeoutEnabled: true,
		}), true, "read-only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer c.client.Close()
			err := inspect(c.client, c.clusterValidated)
			if c.refused == "-" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				err = prove(t.Context(), c.client)
			}
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Fatalf("got %v, want a refusal because of %q", err, c.refused)
			}
		})
	}
}

func TestAStartOnAReplicaFailsAndSaysWhy(t *testing.T) {
	primary, replica := testkit.StartRedis(t), testkit.StartRedis(t)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica.Must("REPLICAOF", host, port)
	signals, logs := watched()
	if err := openWith(t, signals, primary.Addr()).Start(t.Context()); err != nil {
		t.Fatalf("on the primary: %v", err)
	}
	err := openWith(t, signals, replica.Addr()).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "not a primary") {
		t.Fatalf("on the replica: %v", err)
	}
	if n := emitted(logs, "redis.connection.unready"); n != 1 {
		t.Fatalf("emitted %d times", n)
	}
}

// After a failover the former primary refuses: nothing was written, and that is said.
// The reference calls it unknown.
func TestAfterAFailoverTheNextCommandIsADefiniteRejection(t *testing.T) {
	first, second := testkit.StartRedis(t), testkit.StartRedis(t)
	o := open(t, first.Addr())
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := begin(t, o, identity("failover"), operation.BeginAcquired).Lease
	host, port, _ := strings.Cut(second.Addr(), ":")
	first.Must("REPLICAOF", host, port)
	_, err := o.Begin(t.Context(), identity("failover-2"))
	var rejected *operation.RejectedError
	if !errors.As(err, &rejected) || rejected.Code != "READONLY" || class(err) != "rejected" {
		t.Fatalf("begin: %v", err)
	}
	// Once it is the primary again, so is the coordinator's.
	first.Must("REPLICAOF", "NO", "ONE")
	if r, err := o.Renew(t.Context(), l); err != nil || !r.Outcome.Valid() {
		t.Fatalf("renew: %+v, %v", r, err)
	}
}

func TestTheEmbeddedServerIsAPrimaryThatEvictsNothing(t *testing.T) {
	signals, logs := watched()
	if err := openWith(t, signals, testkit.StartEmbeddedRedis(t).Addr()).Start(t.Context()); err != nil || logs.Len() != 0 {
		t.Fatalf("%v, emitted %v", err, logs.All())
	}
}

func TestAServerThatMayEvictIsSaid(t *testing.T) {
	server := testkit.StartRedis(t, testkit.WithRedisConfig("maxmemory-policy", "allkeys-lru"))
	for policy, want := range map[string]int{"allkeys-lru": 1, "noeviction": 0, "volatile-ttl": 1} {
		server.Must("CONFIG", "SET", "maxmemory-policy", policy)
		signals, logs := watched()
		if err := openWith(t, signals, server.Addr()).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := emitted(logs, observability.OperationEvictable); n != want {
			t.Errorf("%s: said %d times, want %d", policy, n, want)
		}
	}
}

func TestClosingTheTransportLeavesTheConnectionOpen(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr())
	l := begin(t, o, identity("closing"), operation.BeginAcquired).Lease
	o.Store.close()
	for name, err := range everyCommand(t, o, l) {
		if class(err) != "unavailable" || !errors.Is(err, operation.ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
	if err := o.Start(t.Context()); err != nil {
		t.Errorf("the connection was closed with the transport: %v", err)
	}
	for range 2 {
		if err := o.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if err := o.Start(t.Context()); err == nil {
		t.Error("the connection outlived its owner's close")
	}
}

func TestCloseWaitsForWhatIsInFlightAndDismissesTheRest(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	o := open(t, proxy.Addr())
	begin(t, o, identity("warm"), operation.BeginAcquired)
	held := proxy.HoldNextReply(nil)
	result := make(chan error, 1)
	go func() { _, err := o.Begin(context.Background(), identity("in-flight")); result <- err }()
	<-held.Hit()
	closed := make(chan error, 1)
	go func() { closed <- o.Close(context.Background()) }()
	until(t, func() bool {
		_, err := o.ReadStatus(t.Context(), identity("x"))
		return errors.Is(err, operation.ErrClosed)
	})
	select {
	case err := <-closed:
		t.Fatalf("closed before the command in flight: %v", err)
	default:
	}
	held.Disarm()
	if err := <-result; err != nil {
		t.Fatalf("the command in flight: %v", err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}

func TestTheModuleProvidesTheCoordinatorAlone(t *testing.T) {
	server := testkit.StartRedis(t)
	config := Config{Redis: redismodule.Config{Addresses: []string{server.Addr()}}}
	var c operation.Coordinator
	app := fxtest.New(t, Module, fx.Supply(config, observability.New(nil)), fx.Populate(&c))
	app.RequireStart()
	begin(t, c, identity("fx"), operation.BeginAcquired)
	app.RequireStop()
	if _, err := c.ReadStatus(t.Context(), identity("fx")); !errors.Is(err, operation.ErrClosed) {
		t.Fatalf("after the stop: %v", err)
	}
	if err := fx.New(fx.NopLogger, Module, fx.Supply(Config{}, observability.New(nil)), fx.Invoke(func(operation.Coordinator) {})).Err(); err == nil || !strings.Contains(err.Error(), "redis URL: not set") {
		t.Fatalf("without an address: %v", err)
	}
}
