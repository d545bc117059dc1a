package operationstore

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/semantic/operation"
)

// inspect accepts a client whose options show that every command goes once, to a
// primary. What options cannot show, [prove] asks the server.
func inspect(client redis.UniversalClient, clusterValidated bool) error {
	var retries int
	var deadlines bool
	if r := reflect.ValueOf(client); client == nil || r.Kind() == reflect.Pointer && r.IsNil() {
		return &operation.InvalidError{Argument: "client", Allowed: "one that is not nil"}
	}
	switch c := client.(type) {
	case *redis.Client:
		retries, deadlines = c.Options().MaxRetries, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		o := c.Options()
		retries, deadlines = o.MaxRetries, o.ContextTimeoutEnabled
		switch {
		case o.ReadOnly:
			return unproven("client is read-only: it routes to replicas")
		case o.RouteByLatency, o.RouteRandomly:
			return unproven("client routes by latency or at random: it may read from replicas")
		case !clusterValidated:
			return unproven("client is of Redis Cluster, which has not been validated for this use")
		}
	case *redis.Ring:
		return unproven("client is a ring: its shards share no authority")
	default:
		return unproven("client of type %T cannot be inspected", client)
	}
	switch {
	case retries > 0:
		return unproven("client resends commands, up to %d times: a lost reply would run one twice", retries)
	case !deadlines:
		return unproven("client ignores context deadlines")
	}
	return nil
}

// prove asks the server, or every primary of a cluster, for its role, and shows that
// keys reach it as they were sent and that the user may do what the script does. Three
// round trips.
func prove(ctx context.Context, client redis.UniversalClient) error {
	if err := permitted(ctx, client); err != nil {
		return err
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return isPrimary(ctx, node)
		})
	}
	return isPrimary(ctx, client)
}

// admit asks each new connection's server for its role, before any command goes there:
// after a failover or a restart the server is another one than Start has asked. In a
// Cluster, which redirects, it is not used.
func admit(ctx context.Context, c *redis.Conn) error {
	return isPrimary(ctx, c)
}

func isPrimary(ctx context.Context, client interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}) error {
	reply, err := client.Do(ctx, "ROLE").Slice()
	switch {
	case err != nil:
		return explained("ROLE", err)
	case len(reply) == 0 || reply[0] != "master":
		return unproven("server is not a primary, its role is %v: check Redis.Addresses", reply)
	}
	return nil
}

// evictionPolicy reads maxmemory-policy from INFO, which managed services allow.
func evictionPolicy(ctx context.Context, client redis.UniversalClient) (string, error) {
	info, err := client.Do(ctx, "INFO", "memory").Text()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok {
			return policy, nil
		}
	}
	return "", errors.New("the server does not tell its maxmemory-policy")
}
