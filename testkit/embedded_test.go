package testkit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/testkit"
)

// dial returns a plain client of a test server.
func dial(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialerRetries: 1, DialTimeout: 2 * time.Second, ReadTimeout: 5 * time.Second,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEmbeddedKeysExpireByThemselves(t *testing.T) {
	e := testkit.StartEmbeddedRedis(t)
	c := dial(t, e.Addr())
	if err := c.Set(t.Context(), "k", "v", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key expires", func() bool {
		return errors.Is(c.Get(t.Context(), "k").Err(), redis.Nil)
	})
	if keys := e.Keys(); len(keys) != 0 {
		t.Errorf("keys left: %v", keys)
	}
}

func TestEmbeddedTTLAndTimeFollowTheTestsClock(t *testing.T) {
	clock := testkit.NewClock()
	e := testkit.StartEmbeddedRedis(t, testkit.WithClock(clock))
	c := dial(t, e.Addr())
	now := func() time.Time {
		t.Helper()
		at, err := c.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	if got := now(); !got.Equal(clock.Now()) {
		t.Errorf("TIME = %v, the clock says %v", got, clock.Now())
	}
	if err := c.Set(t.Context(), "k", "v", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour - time.Millisecond)
	if got := c.PTTL(t.Context(), "k").Val(); got != time.Millisecond {
		t.Errorf("PTTL just before the end = %v, want 1ms", got)
	}
	clock.Advance(time.Millisecond)
	if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET at the end of the TTL: %v, want redis.Nil", err)
	}
	if got := now(); !got.Equal(clock.Now()) {
		t.Errorf("TIME = %v, the clock says %v", got, clock.Now())
	}
}

func TestEmbeddedScriptsSeeExpiryAndTime(t *testing.T) {
	clock := testkit.NewClock()
	e := testkit.StartEmbeddedRedis(t, testkit.WithClock(clock))
	c := dial(t, e.Addr())
	script := redis.NewScript(`
		local left = redis.call('PTTL', KEYS[1])
		local now = redis.call('TIME')
		if left < 0 then redis.call('SET', KEYS[1], 'v', 'PX', ARGV[1]) end
		return {left, now[1]}`)
	run := func() (left, seconds int64) {
		t.Helper()
		got, err := script.Run(t.Context(), c, []string{"k"}, 5000).Slice()
		if err != nil {
			t.Fatal(err)
		}
		seconds, err = strconv.ParseInt(got[1].(string), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return got[0].(int64), seconds
	}
	if left, at := run(); left != -2 || at != clock.Now().Unix() {
		t.Errorf("first run: PTTL %d, TIME %d; want -2 and %d", left, at, clock.Now().Unix())
	}
	clock.Advance(2 * time.Second)
	if left, at := run(); left != 3000 || at != clock.Now().Unix() {
		t.Errorf("2 s later: PTTL %d, TIME %d; want 3000 and %d", left, at, clock.Now().Unix())
	}
	clock.Advance(3 * time.Second)
	if left, _ := run(); left != -2 {
		t.Errorf("at the end: PTTL %d, want -2", left)
	}
}

func TestEmbeddedDownRefusesAndKeepsTheData(t *testing.T) {
	e := testkit.StartEmbeddedRedis(t)
	c := dial(t, e.Addr())
	ctx := t.Context()
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		e.Down(true)
		e.Down(true)
		if err := c.Get(ctx, "k").Err(); err == nil {
			t.Fatal("a server that is down answers")
		}
		if conn, err := net.Dial("tcp", e.Addr()); err == nil {
			conn.Close()
			t.Fatal("a server that is down accepts connections")
		}
		e.Down(false)
		e.Down(false)
		eventually(t, "the data is there again", func() bool { return c.Get(ctx, "k").Val() == "v" })
	}
}

func TestEmbeddedKeysListsWhatIsLeft(t *testing.T) {
	e := testkit.StartEmbeddedRedis(t)
	c := dial(t, e.Addr())
	for i := range 3 {
		c.Set(t.Context(), fmt.Sprint("k", i), "v", 0)
	}
	if got := e.Keys(); !slices.Equal(got, []string{"k0", "k1", "k2"}) {
		t.Errorf("Keys = %v", got)
	}
	e.FlushAll()
	if got := e.Keys(); len(got) != 0 {
		t.Errorf("Keys after FlushAll = %v", got)
	}
}

func TestEmbeddedCloseEndsOpenSubscriptions(t *testing.T) {
	e, err := testkit.LaunchEmbeddedRedis()
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, e.Addr())
	sub := c.Subscribe(t.Context(), "ch")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Close()
	e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := sub.Receive(ctx); err == nil {
		t.Error("a subscription outlived the server")
	}
}
