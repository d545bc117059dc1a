package redismodule

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/testkit"
)

// admin returns a client for looking at the server and for publishing past Coord.
func admin(t *testing.T, s *testkit.RedisServer) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// killSubscribers closes every subscriber connection from the server's side.
func killSubscribers(t *testing.T, s *testkit.RedisServer) {
	t.Helper()
	if n := s.Must("CLIENT", "KILL", "TYPE", "pubsub"); n == int64(0) {
		t.Fatal("there was no subscriber to kill")
	}
}

// eventually waits for a condition with a bound that only a broken program meets.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); pause(t.Context(), 2*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// protocols runs a test with both versions of the wire protocol.
func protocols(t *testing.T, test func(t *testing.T, protocol int)) {
	for _, p := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", p), func(t *testing.T) { test(t, p) })
	}
}

// dialCounter dials and counts.
type dialCounter struct{ n atomic.Int64 }

func (d *dialCounter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.n.Add(1)
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, address)
}

func (d *dialCounter) count() int64 { return d.n.Load() }
