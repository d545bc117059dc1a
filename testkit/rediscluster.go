package testkit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// RedisCluster is a Redis Cluster of three primaries that share all slots.
type RedisCluster struct {
	Nodes []*RedisServer
}

const (
	clusterNodes = 3
	clusterSlots = 16384
)

// StartRedisCluster starts three cluster nodes that end with the test and returns when
// each of them serves, after about two seconds: a cluster does not before. Without
// redis-server (version 7 or later) it does as [StartRedis].
func StartRedisCluster(t testing.TB, opts ...RedisOption) *RedisCluster {
	t.Helper()
	RequireProgram(t, redisProgram, redisInstall)
	c, err := LaunchRedisCluster(t.Context(), opts...)
	if err != nil {
		t.Fatalf("start a redis cluster: %v", err)
	}
	for _, n := range c.Nodes {
		n.attach(t)
	}
	return c
}

// LaunchRedisCluster is StartRedisCluster without a test; the caller stops it.
func LaunchRedisCluster(ctx context.Context, opts ...RedisOption) (c *RedisCluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	c = &RedisCluster{}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	opts = append(opts[:len(opts):len(opts)], func(s *redisSettings) { s.cluster = true })
	for range clusterNodes {
		n, err := LaunchRedis(ctx, "", opts...)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	first := c.Nodes[0]
	for i, n := range c.Nodes {
		from, to := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes-1
		if _, err := n.Command(ctx, "CLUSTER", "ADDSLOTSRANGE", from, to); err != nil {
			return nil, fmt.Errorf("give slots to a cluster node: %w", err)
		}
		if _, err := n.Command(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return nil, fmt.Errorf("give an epoch to a cluster node: %w", err)
		}
		if n == first {
			continue
		}
		if _, err := n.Command(ctx, "CLUSTER", "MEET", "127.0.0.1", first.port.Number(), first.busPort.Number()); err != nil {
			return nil, fmt.Errorf("introduce cluster nodes: %w", err)
		}
	}
	return c, poll(ctx, func() error { return c.serves(ctx) })
}

// Addrs returns host:port of each node.
func (c *RedisCluster) Addrs() []string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Addr())
	}
	return all
}

// NodeOf returns the node that serves a key.
func (c *RedisCluster) NodeOf(key string) *RedisServer {
	slot, _ := c.Nodes[0].Must("CLUSTER", "KEYSLOT", key).(int64)
	for i, n := range c.Nodes {
		if int(slot) < (i+1)*clusterSlots/clusterNodes {
			return n
		}
	}
	return nil // no slot is that high
}

// Stop ends the nodes.
func (c *RedisCluster) Stop() {
	for _, n := range c.Nodes {
		n.Stop()
	}
}

// serves tells whether every node knows all others and takes commands.
func (c *RedisCluster) serves(ctx context.Context) error {
	for _, n := range c.Nodes {
		reply, err := n.Command(ctx, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		info := fmt.Sprint(reply)
		for _, want := range []string{
			"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", clusterNodes),
			fmt.Sprintf("cluster_slots_ok:%d", clusterSlots), fmt.Sprintf("cluster_size:%d", clusterNodes),
		} {
			if !strings.Contains(info, want+"\r\n") {
				return fmt.Errorf("node %s is not at %s", n.Addr(), want)
			}
		}
	}
	return nil
}
