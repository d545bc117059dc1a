package testkit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"testing"
	"time"
)

// RedisSentinel is a primary, its replica and the sentinels that watch them.
type RedisSentinel struct {
	MasterName string
	Servers    *RedisPair // as it is now; Failover changes it
	sentinels  []*RedisServer
}

const (
	sentinelMaster = "coord"
	sentinelCount  = 3
	sentinelQuorum = 2
)

// StartSentinel starts a primary, a replica and three sentinels that know each other,
// and ends them with the test. Without redis-server it does as [StartRedis].
func StartSentinel(t testing.TB, opts ...RedisOption) *RedisSentinel {
	t.Helper()
	pair := StartRedisPair(t, opts...)
	s, err := launchSentinels(t.Context(), pair)
	if err != nil {
		t.Fatalf("start sentinels: %v", err)
	}
	for _, sentinel := range s.sentinels {
		sentinel.attach(t)
	}
	return s
}

// LaunchSentinel is StartSentinel without a test; the caller stops it.
func LaunchSentinel(ctx context.Context, opts ...RedisOption) (*RedisSentinel, error) {
	pair, err := LaunchRedisPair(ctx, opts...)
	if err != nil {
		return nil, err
	}
	s, err := launchSentinels(ctx, pair)
	if err != nil {
		pair.Stop()
		return nil, err
	}
	return s, nil
}

// Addrs returns host:port of each sentinel.
func (s *RedisSentinel) Addrs() []string {
	var all []string
	for _, sentinel := range s.sentinels {
		all = append(all, sentinel.Addr())
	}
	return all
}

// Stop ends the sentinels and the servers.
func (s *RedisSentinel) Stop() {
	for _, sentinel := range s.sentinels {
		sentinel.Stop()
	}
	s.Servers.Stop()
}

// Failover lets the sentinels promote the replica while both servers run, and waits
// until all of them name it and the old primary follows it.
func (s *RedisSentinel) Failover() {
	s.change("a failover", func(ctx context.Context) error {
		return poll(ctx, func() error { // NOGOODSLAVE until a sentinel has looked at the replica
			_, err := s.sentinels[0].Command(ctx, "SENTINEL", "FAILOVER", s.MasterName)
			return err
		})
	})
	s.Servers.await("the old primary follows", func(ctx context.Context) error {
		return s.Servers.Replica.hasRole(ctx, "slave")
	})
}

// Crash kills the primary and waits until the sentinels have noticed and promoted the
// replica by themselves, about a second.
func (s *RedisSentinel) Crash() {
	s.change("the sentinels' own failover", func(context.Context) error {
		s.Servers.Primary.Kill()
		return nil
	})
}

// change makes the roles change and waits until every sentinel names the new primary.
func (s *RedisSentinel) change(what string, begin func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	err := begin(ctx)
	if err == nil {
		err = s.agree(ctx, s.Servers.Replica)
	}
	if err != nil {
		s.Servers.Primary.fail("%s: %v", what, err)
		return
	}
	s.Servers.Primary, s.Servers.Replica = s.Servers.Replica, s.Servers.Primary
}

// agree waits until every sentinel names the server and it is a primary.
func (s *RedisSentinel) agree(ctx context.Context, primary *RedisServer) error {
	return poll(ctx, func() error {
		for _, sentinel := range s.sentinels {
			reply, err := sentinel.Command(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName)
			if err != nil {
				return err
			}
			if got := net.JoinHostPort(fmt.Sprint(word(reply, 0)), fmt.Sprint(word(reply, 1))); got != primary.Addr() {
				return fmt.Errorf("sentinel %s names %s, not %s", sentinel.Addr(), got, primary.Addr())
			}
		}
		return primary.hasRole(ctx, "master")
	})
}

// launchSentinels starts sentinels that are told of each other and of the replica:
// left to themselves they take seconds to find one another.
func launchSentinels(ctx context.Context, pair *RedisPair) (s *RedisSentinel, err error) {
	s = &RedisSentinel{MasterName: sentinelMaster, Servers: pair}
	defer func() {
		if err != nil {
			for _, sentinel := range s.sentinels {
				sentinel.Stop()
			}
		}
	}()
	ids := make([]string, sentinelCount)
	for i := range ids {
		sentinel, err := newRedisServer("", []RedisOption{func(o *redisSettings) { o.sentinel = true }})
		if err != nil {
			return nil, err
		}
		s.sentinels = append(s.sentinels, sentinel)
		ids[i] = runID()
	}
	for i, sentinel := range s.sentinels {
		host, port, _ := net.SplitHostPort(pair.Primary.Addr())
		name := " " + s.MasterName + " "
		lines := []string{
			"sentinel myid " + ids[i],
			fmt.Sprintf("sentinel monitor%s%s %s %d", name, host, port, sentinelQuorum),
			"sentinel down-after-milliseconds" + name + "500",
			"sentinel failover-timeout" + name + "2000",
		}
		if p := pair.Primary.settings.password; p != "" {
			lines = append(lines, "sentinel auth-pass"+name+quoted(p))
		}
		host, port, _ = net.SplitHostPort(pair.Replica.Addr())
		lines = append(lines, "sentinel known-replica"+name+host+" "+port)
		for j, other := range s.sentinels {
			if j != i {
				host, port, _ = net.SplitHostPort(other.Addr())
				lines = append(lines, "sentinel known-sentinel"+name+host+" "+port+" "+ids[j])
			}
		}
		sentinel.settings.directives = lines
		if err := sentinel.start(ctx); err != nil {
			return nil, err
		}
		// Look around ten times as often as in production, where it is known how. Not so
		// the announcements, some three times as often: four periods after a promotion, which its
		// leader takes a second to see, a sentinel that has not heard of it reverts it.
		_, _ = sentinel.Command(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", 200, "PING-PERIOD", 100, "ASK-PERIOD", 100, "PUBLISH-PERIOD", 600)
	}
	if err := s.agree(ctx, pair.Primary); err != nil {
		return nil, err
	}
	return s, nil
}

func runID() string {
	b := make([]byte, 20)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
