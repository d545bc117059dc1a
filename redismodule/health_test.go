package redismodule

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// part is what h says of one part now.
func part(t *testing.T, h *health.Health, name string) health.Finding {
	t.Helper()
	f, ok := h.Check(t.Context()).Part(name)
	if !ok {
		t.Fatalf("there is no part %s", name)
	}
	return f
}

// becomes waits until a part is in a state.
func becomes(t *testing.T, h *health.Health, name string, want health.State) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for part(t, h, name).State != want {
		if time.Now().After(deadline) {
			t.Fatalf("%s is %+v, want %s", name, part(t, h, name), want)
		}
		pause(t.Context(), 5*time.Millisecond)
	}
}

func TestHealthFollowsRedisThroughAnOutage(t *testing.T) {
	for _, fault := range []testkit.Fault{testkit.FaultDown, testkit.FaultHang} {
		t.Run(string(fault), func(t *testing.T) {
			server, network, h := testkit.StartRedis(t), newFaultNet(), health.New()
			s, err := Open(Config{
				URL: server.URL(), Health: h, Dial: network.dial, PingInterval: 300 * time.Millisecond, CommandTimeout: 500 * time.Millisecond,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close(context.Background()) }()
			if r := h.Check(t.Context()); r.State != health.Starting || part(t, h, "redis").State != health.NotStarted {
				t.Errorf("before the start: %+v", r)
			}
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Broadcast.Subscribe(t.Context(), "news", func(context.Context, semantic.Message) {}); err != nil {
				t.Fatal(err)
			}
			r := h.Check(t.Context())
			if !r.Ready() {
				t.Errorf("after the start: %+v", r)
			}
			if f, _ := r.Part("redis"); f.Pool == nil || f.Pool.Total == 0 || f.Took <= 0 {
				t.Errorf("redis: %+v, want its pool and the time it took", f)
			}
			if f, _ := r.Part("redis_subscriber"); len(f.Subscriptions) != 1 || f.Subscriptions[0] != (health.Subscription{Channel: "news", Confirmed: true}) {
				t.Errorf("redis_subscriber: %+v, want the confirmed subscription", f)
			}

			heal := network.inject(fault)
			began := time.Now()
			f := part(t, h, "redis")
			if took := time.Since(began); f.State != health.Failing || f.Err == nil || took > health.Budget+900*time.Millisecond {
				t.Errorf("in the outage, after %v: %+v", took, f)
			}
			if fault == testkit.FaultDown && f.Cause != "unavailable" {
				t.Errorf("cause %q, want unavailable", f.Cause)
			}
			becomes(t, h, "redis_subscriber", health.Failing)
			if f := part(t, h, "redis_subscriber"); f.Cause != "unconfirmed" || f.Subscriptions[0].Confirmed {
				t.Errorf("redis_subscriber in the outage: %+v", f)
			}
			heal()
			becomes(t, h, "redis", health.OK)
			becomes(t, h, "redis_subscriber", health.OK)

			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := h.Check(t.Context()); r.Ready() || r.Parts[0].State != health.Closed || r.Parts[1].State != health.Closed {
				t.Errorf("after close: %+v", r)
			}
		})
	}
}

// A connection that works is not enough: after a failover it may lead to a replica.
func TestHealthFindsOutThatTheServerIsNoPrimaryAnyMore(t *testing.T) {
	server, h := testkit.StartRedis(t), health.New()
	openServices(t, 1, Config{URL: server.URL(), Health: h}, nil)
	other := testkit.StartRedis(t)
	host, port, _ := strings.Cut(other.Addr(), ":")
	server.Must("REPLICAOF", host, port)
	becomes(t, h, "redis", health.Failing)
	if f := part(t, h, "redis"); !errors.Is(f.Err, semantic.ErrUnavailable) || !strings.Contains(f.Err.Error(), "READONLY") {
		t.Errorf("%+v, want READONLY", f)
	}
	server.Must("REPLICAOF", "NO", "ONE")
	becomes(t, h, "redis", health.OK)
}

func TestASubscriptionThatTheServerRefusesToConfirmAgainIsTold(t *testing.T) {
	server, h := testkit.StartRedis(t), health.New()
	server.Must("ACL", "SETUSER", "coord", "on", ">secret", "~*", "&*", "+@all")
	s := openServices(t, 1, Config{Addresses: []string{server.Addr()}, Username: "coord", Password: "secret", Health: h, PingInterval: 300 * time.Millisecond}, nil)[0]
	for _, channel := range []string{"allowed{1}", "forbidden"} {
		if _, err := s.Broadcast.Subscribe(t.Context(), channel, func(context.Context, semantic.Message) {}); err != nil {
			t.Fatal(err)
		}
	}
	// Taking a channel away ends the connections that listen to it.
	server.Must("ACL", "SETUSER", "coord", "resetchannels", "&coord:broadcast:{allowed*", "&coord:probe:*")
	becomes(t, h, "redis_subscriber", health.Failing)
	want := []health.Subscription{{Channel: "allowed{1}", Confirmed: true}, {Channel: "forbidden"}}
	deadline := time.Now().Add(20 * time.Second)
	for f := part(t, h, "redis_subscriber"); len(f.Subscriptions) != 2 || f.Subscriptions[0] != want[0] || f.Subscriptions[1] != want[1]; f = part(t, h, "redis_subscriber") {
		if time.Now().After(deadline) {
			t.Fatalf("subscriptions %+v, want %+v", f.Subscriptions, want)
		}
		pause(t.Context(), 10*time.Millisecond)
	}
	body, err := json.Marshal(h.Check(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"secret", "forbidden", "127.0.0.1", server.Addr()} {
		if strings.Contains(string(body), secret) {
			t.Errorf("the body tells %q: %s", secret, body)
		}
	}
}

func TestManyProbesAtOnceCostFewRoundTrips(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy, h := testkit.StartProxy(t, server.Addr()), health.New()
	openServices(t, 1, Config{URL: proxy.URL(), Health: h}, nil)
	proxy.ResetCounts()
	h.Check(t.Context())
	if n := proxy.Commands(); n != 1 {
		t.Errorf("a check took %d round trips, want 1", n)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if r := h.Check(t.Context()); !r.Ready() {
				t.Errorf("%+v", r)
			}
		})
	}
	all.Wait()
	if n := proxy.Commands(); n > 51 {
		t.Errorf("%d round trips", n)
	}
}
