package redismodule

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// The two tests run every verb of the five services as the user that docs/keys.md
// describes, and look for refusals.

func TestTheDocumentedPermissionsAreEnough(t *testing.T) {
	server := testkit.StartRedis(t)
	server.Must(documentedUser(t)...)
	everyVerb(t, Config{Addresses: []string{server.Addr()}}, server)
}

func TestTheDocumentedPermissionsAreEnoughOnCluster(t *testing.T) {
	cluster := testkit.StartRedisCluster(t)
	for _, node := range cluster.Nodes {
		node.Must(documentedUser(t, "+cluster|slots")...)
	}
	everyVerb(t, Config{Mode: Cluster, Addresses: cluster.Addrs()}, cluster.Nodes...)
}

// documentedUser is the command that makes the user.
func documentedUser(t *testing.T, more ...any) []any {
	t.Helper()
	page, err := os.ReadFile("../docs/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```acl\nuser (.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/keys.md has no ACL")
	}
	setUser := []any{"ACL", "SETUSER"}
	for _, rule := range strings.Fields(strings.ReplaceAll(string(block[1]), "PASSWORD", "secret")) {
		setUser = append(setUser, rule)
	}
	return append(setUser, more...)
}

func everyVerb(t *testing.T, config Config, servers ...*testkit.RedisServer) {
	t.Helper()
	config.Username, config.Password, config.Namespace = "coord", "secret", "coord"
	s := openServices(t, 1, config, nil)[0]
	ctx := t.Context()
	check := func(verb string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}

	check("cache.Set", s.Cache.Set(ctx, "k", []byte("v"), time.Minute))
	_, _, err := s.Cache.Get(ctx, "k")
	check("cache.Get", err)
	_, err = s.Cache.Add(ctx, "k", []byte("v"), time.Minute)
	check("cache.Add", err)
	_, err = s.Cache.Replace(ctx, "k", []byte("v"), time.Minute)
	check("cache.Replace", err)
	_, err = s.Cache.Touch(ctx, "k", time.Minute)
	check("cache.Touch", err)
	check("cache.Delete", s.Cache.Delete(ctx, "k"))
	_, err = s.Cache.GetOrFetch(ctx, "k", time.Minute, func(context.Context) ([]byte, error) { return []byte("v"), nil }, semantic.WithClusterGuard(time.Second))
	check("cache.GetOrFetch", err)
	if _, found, err := s.Cache.Get(ctx, "k"); !found || err != nil {
		t.Errorf("the fetched value was not stored: %v", err)
	}

	for _, limit := range []semantic.Limit{semantic.PerMinute(5), semantic.PerMinute(5).Sliding(), semantic.PerMinute(5).Smooth()} {
		for range 6 { // a denial takes another path of the script
			_, err = s.Limiter.TryAcquire(ctx, "k", 1, limit)
			check("limiter."+limit.Algorithm.String(), err)
		}
	}

	claim, err := s.Lock.Acquire(ctx, "k", time.Minute, semantic.WithMinHold(10*time.Millisecond))
	check("lock.Acquire", err)
	time.AfterFunc(50*time.Millisecond, func() { s.Lock.Release(context.Background(), "k", claim.Token) })
	began := time.Now()
	next, err := s.Lock.Acquire(ctx, "k", time.Minute, semantic.WithWait(30*time.Second))
	check("lock.Acquire with wait", err)
	if !next.Acquired || next.Fence <= claim.Fence {
		t.Errorf("after a release: %+v, want a fence above %d", next, claim.Fence)
	}
	t.Logf("handed over in %v", time.Since(began))

	_, err = s.Lease.Claim(ctx, "k", "me", time.Minute)
	check("lease.Claim", err)
	_, err = s.Lease.TakeOver(ctx, "k", "you", time.Minute)
	check("lease.TakeOver", err)
	check("lease.Release", s.Lease.Release(ctx, "k", "you").Err)

	heard := make(chan struct{}, 1)
	subscription, err := s.Broadcast.Subscribe(ctx, "c", func(context.Context, semantic.Message) { heard <- struct{}{} })
	check("broadcast.Subscribe", err)
	check("broadcast.Publish", s.Broadcast.Publish(ctx, "c", "x"))
	select {
	case <-heard:
	case <-time.After(30 * time.Second):
		t.Error("the broadcast was not received")
	}
	subscription.Unsubscribe()

	for _, server := range servers {
		if log := server.Must("ACL", "LOG").([]any); len(log) > 0 {
			t.Errorf("a server refused %v", log)
		}
	}
}
