package redismodule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/testkit"
)

// centrifugal/centrifugo#1189: after a failover the link answers PING but sits on a
// node that gets no publishes.
func TestALinkThatAnswersButDeliversNothingIsFoundAndReplaced(t *testing.T) {
	former, present := testkit.StartRedis(t), testkit.StartRedis(t)
	p := testkit.StartProxy(t, former.Addr())
	const ping = time.Second
	log := &hubLog{}
	h := newHub(testRole(t, p.Addr(), 3).OpenFeed, ping, log.hubEvents())
	config, err := Config{Addresses: []string{present.Addr()}}.Settled()
	if err != nil {
		t.Fatal(err)
	}
	command := conn.NewCommand(config.options())
	h.echoes = newEchoes(config, command.Do)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(h.close(ctx), command.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	e, _ := listen(t, h, "c")
	began := time.Now()
	eventually(t, "dropped", func() bool { return len(log.all()) > 0 })
	if took := time.Since(began); took > 3*ping { // 2 on a machine that is not busy
		t.Errorf("found after %v", took)
	}
	p.Retarget(present.Addr())
	eventually(t, "a subscriber on the present server", func() bool {
		n, ok := present.Must("PUBSUB", "NUMSUB", "c").([]any)
		return ok && n[1] == int64(1)
	})
	publish(t, admin(t, present), "c", "m")
	eventually(t, "heard", func() bool { return e.has("m") })
	since, events := time.Now(), len(log.all())
	eventually(t, "some intervals have passed", func() bool { return time.Since(since) > 3*ping })
	if got := log.all(); len(got) != events {
		t.Errorf("a link that delivers was taken for deaf: %v", got)
	}
}

// A user who may not use the probe's channel loses the probe, not the subscription.
func TestAForbiddenProbeChannelHarmsNoSubscription(t *testing.T) {
	s := testkit.StartRedis(t)
	s.Must("ACL", "SETUSER", "limited", "on", ">pw", "+@all", "~*", "resetchannels", "&coord:broadcast:*")
	services, seen := broadcastServices(t, 1, Config{Addresses: []string{s.Addr()}, Username: "limited", Password: "pw"})
	got := record(t, services[0].Broadcast, "c")
	since := time.Now()
	eventually(t, "some intervals have passed", func() bool { return time.Since(since) > 4*testPing })
	if err := services[0].Broadcast.Publish(t.Context(), "c", 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "heard", func() bool { return got.has("1") })
	if n := signalled(seen, observability.SubscriptionDropped); len(n) > 0 {
		t.Errorf("dropped: %v", n)
	}
}

// go-redis#3806, go-redis#3099, centrifugal/centrifuge#613: subscriptions end up on the wrong
// node, or on none, when nodes change roles.
func TestSubscriptionsSurviveASentinelFailover(t *testing.T) {
	s := testkit.StartSentinel(t)
	c := Config{Mode: Sentinel, Addresses: s.Addrs(), MasterName: s.MasterName}
	services, seen := broadcastServices(t, 2, c)
	var tapes []*tape
	for i := range 10 {
		tapes = append(tapes, record(t, services[0].Broadcast, fmt.Sprint("c", i)))
	}
	s.Crash()
	eventually(t, "dropped and resubscribed", func() bool {
		return len(signalled(seen, observability.SubscriptionResubscribed)) > 0
	})
	for i, got := range tapes {
		eventually(t, "publishing through the new primary reaches it", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return services[1].Broadcast.Publish(ctx, fmt.Sprint("c", i), "after") == nil && got.has(`"after"`)
		})
		if all := got.all(); all[0] != "gap:LINK_LOST" {
			t.Errorf("channel %d got %q, want a gap first", i, all)
		}
	}
}

func TestSubscriptionsSurviveALostLinkInACluster(t *testing.T) {
	c := testkit.StartRedisCluster(t)
	services, seen := broadcastServices(t, 2, Config{Mode: Cluster, Addresses: c.Addrs(), DialTimeout: time.Second, CommandTimeout: time.Second})
	got := record(t, services[0].Broadcast, "c")
	if err := services[1].Broadcast.Publish(t.Context(), "c", "before"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "heard", func() bool { return got.has(`"before"`) })
	// The node that has the subscriber, whichever it is, closes the link. Classic
	// channels belong to no slot, so that moving slots does not concern them.
	for _, node := range c.Nodes {
		node.Must("CLIENT", "KILL", "TYPE", "pubsub")
	}
	eventually(t, "resubscribed", func() bool { return len(signalled(seen, observability.SubscriptionResubscribed)) == 1 })
	if err := services[1].Broadcast.Publish(t.Context(), "c", "after"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "heard", func() bool { return got.has(`"after"`) })
	if all := got.all(); !slices.Equal(all, []string{`"before"`, "gap:LINK_LOST", `"after"`}) {
		t.Errorf("got %q", all)
	}
}
