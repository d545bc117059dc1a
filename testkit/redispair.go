package testkit

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"
)

// RedisPair is a primary with a replica that has caught up. Its fields change places
// with Failover and SwitchRoles.
type RedisPair struct {
	Primary *RedisServer
	Replica *RedisServer
}

// StartRedisReplica starts a replica of primary that ends with the test. It returns
// when the replica has the primary's data.
func StartRedisReplica(t testing.TB, primary *RedisServer, opts ...RedisOption) *RedisServer {
	t.Helper()
	s, err := launchReplica(t.Context(), primary, opts)
	if err != nil {
		t.Fatalf("start a replica of %s: %v", primary.Addr(), err)
	}
	s.attach(t)
	return s
}

// StartRedisPair starts a primary and a replica that end with the test. Without
// redis-server it does as [StartRedis].
func StartRedisPair(t testing.TB, opts ...RedisOption) *RedisPair {
	t.Helper()
	primary := StartRedis(t, opts...)
	return &RedisPair{Primary: primary, Replica: StartRedisReplica(t, primary, opts...)}
}

// LaunchRedisPair is StartRedisPair without a test; the caller stops it.
func LaunchRedisPair(ctx context.Context, opts ...RedisOption) (*RedisPair, error) {
	primary, err := LaunchRedis(ctx, "", opts...)
	if err != nil {
		return nil, err
	}
	replica, err := launchReplica(ctx, primary, opts)
	if err != nil {
		primary.Stop()
		return nil, err
	}
	return &RedisPair{Primary: primary, Replica: replica}, nil
}

// Stop ends both servers.
func (p *RedisPair) Stop() {
	p.Primary.Stop()
	p.Replica.Stop()
}

// Sync waits until the replica has everything the primary has acknowledged.
func (p *RedisPair) Sync() { p.await("replica catches up", p.Primary.caughtUp) }

// Failover kills the primary and makes the replica the primary: writes that were not
// replicated are lost, as in a crash. The killed server is Replica now; Restart brings
// it back as an empty primary of its own.
func (p *RedisPair) Failover() {
	p.Primary.Kill()
	p.Replica.Must("REPLICAOF", "NO", "ONE")
	p.Primary, p.Replica = p.Replica, p.Primary
}

// SwitchRoles hands the primary's role over without loss, as planned maintenance does.
// Both servers keep running: connections to the old primary meet READONLY from now on.
func (p *RedisPair) SwitchRoles() {
	host, port, _ := net.SplitHostPort(p.Replica.Addr())
	p.Primary.Must("FAILOVER", "TO", host, port, "TIMEOUT", 10_000)
	p.Primary, p.Replica = p.Replica, p.Primary
	p.await("roles change", func(ctx context.Context) error {
		if err := p.Primary.hasRole(ctx, "master"); err != nil {
			return err
		}
		if err := p.Replica.hasRole(ctx, "slave"); err != nil {
			return err
		}
		return p.Primary.caughtUp(ctx)
	})
}

func (p *RedisPair) await(what string, try func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := poll(ctx, func() error { return try(ctx) }); err != nil {
		p.Primary.fail("redis pair: %s: %v", what, err)
	}
}

func launchReplica(ctx context.Context, primary *RedisServer, opts []RedisOption) (*RedisServer, error) {
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		return nil, err
	}
	opts = append(opts[:len(opts):len(opts)], WithRedisConfig("replicaof", host+" "+port))
	if primary.settings.password != "" {
		opts = append(opts, WithRedisPassword(primary.settings.password))
	}
	s, err := LaunchRedis(ctx, "", opts...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = poll(ctx, func() error {
		role, err := s.Command(ctx, "ROLE")
		if err != nil {
			return err
		}
		if link := word(role, 3); link != "connected" {
			return fmt.Errorf("link to the primary is %v", link)
		}
		return primary.caughtUp(ctx)
	})
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("replica: %w", err)
	}
	return s, nil
}

// caughtUp tells whether every write so far is on a replica. WAIT speaks of what its
// own connection has seen, which PING makes everything until now.
func (s *RedisServer) caughtUp(ctx context.Context) error {
	reply, err := redisCommand(ctx, s.Addr(), s.settings.password, []any{"PING"}, []any{"WAIT", 1, 1000})
	if err != nil {
		return err
	}
	if n, _ := reply.(int64); n < 1 {
		return fmt.Errorf("no replica of %s has caught up", s.Addr())
	}
	return nil
}

func (s *RedisServer) hasRole(ctx context.Context, want string) error {
	role, err := s.Command(ctx, "ROLE")
	if err != nil {
		return err
	}
	if got := word(role, 0); got != want {
		return fmt.Errorf("role of %s is %v, not %s", s.Addr(), got, want)
	}
	return nil
}

// word returns an element of a list reply, nil if there is none.
func word(reply any, i int) any {
	if list, ok := reply.([]any); ok && i < len(list) {
		return list[i]
	}
	return nil
}
