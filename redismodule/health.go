package redismodule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
)

// checkCommand asks the question of the start again: it finds out a server that is gone,
// one that has become a replica and one that refuses writes, and writes nothing while the
// namespace has its version. One round trip.
func (c *core) checkCommand(ctx context.Context) health.Result {
	err := c.askLayout(ctx)
	return health.Result{Err: err, Cause: semantic.FailureName(err), Pool: c.pool()}
}

// pool is the state of the command role's connections.
func (c *core) pool() *health.Pool {
	s, ok := c.command.Pool()
	if !ok {
		return nil // closed
	}
	return &health.Pool{Total: s.TotalConns, Idle: s.IdleConns, Waits: s.WaitCount, Timeouts: s.Timeouts, Stale: s.StaleConns}
}

var errUnconfirmed = errors.New("the server has not confirmed every subscription")

// checkSubscriber tells whether every channel of the hub is confirmed on a live link. It
// asks nobody: the hub probes its link all the time.
func checkSubscriber(h *hub, keys keyspace) health.Check {
	return func(context.Context) health.Result {
		confirmed := h.confirmations()
		r := health.Result{Subscriptions: []health.Subscription{}}
		waiting := 0
		for name, ok := range confirmed {
			if !ok {
				waiting++
			}
			if channel, ours := keys.broadcastChannel(name); ours {
				r.Subscriptions = append(r.Subscriptions, health.Subscription{Channel: channel, Confirmed: ok})
			}
		}
		slices.SortFunc(r.Subscriptions, func(a, b health.Subscription) int { return strings.Compare(a.Channel, b.Channel) })
		if waiting > 0 {
			r.Err = fmt.Errorf("%w: %d of %d channels wait for it", errUnconfirmed, waiting, len(confirmed))
			r.Cause = "unconfirmed"
		}
		return r
	}
}

// confirmations tells of every channel and pattern whether the server has confirmed it on
// the present link. It never blocks on the network.
func (h *hub) confirmations() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]bool, len(h.topics))
	for t, e := range h.topics {
		all[t.name] = e.confirmed
	}
	return all
}

// broadcastChannel is the channel of a broadcast key, as its subscriber called it.
func (k keyspace) broadcastChannel(key string) (channel string, ours bool) {
	rest, ok1 := strings.CutPrefix(key, k.namespace+":"+string(kindBroadcast)+":{")
	name, ok2 := strings.CutSuffix(rest, "}")
	return unbraces.Replace(name), ok1 && ok2
}

var unbraces = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
