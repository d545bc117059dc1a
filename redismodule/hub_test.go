package redismodule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

const testPing = 400 * time.Millisecond

// hubLog records what a hub signals.
type hubLog struct {
	mu     sync.Mutex
	events []string
	gaps   []time.Duration
	counts []int
}

func (l *hubLog) add(event string, channels int, gap time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
	l.counts = append(l.counts, channels)
	l.gaps = append(l.gaps, gap)
}

func (l *hubLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func (l *hubLog) hubEvents() hubEvents {
	return hubEvents{
		dropped:      func(n int, _ error) { l.add("dropped", n, 0) },
		resubscribed: func(n int, gap time.Duration) { l.add("resubscribed", n, gap) },
	}
}

// ear is a sink that keeps what it hears.
type ear struct {
	mu    sync.Mutex
	heard []string // payloads, and "gap"
	gaps  []time.Duration
}

func (e *ear) onMessage(payload string) { e.hear(payload) }
func (e *ear) onPatternMessage(channel, payload string) {
	e.hear(channel + "=" + payload)
}

func (e *ear) onGap(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, "gap")
	e.gaps = append(e.gaps, d)
}

func (e *ear) hear(s string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, s)
}

func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

func (e *ear) has(s string) bool { return slices.Contains(e.all(), s) }

// testRole returns a subscriber role of a server at addr, closed after the hub is.
func testRole(t *testing.T, addr string, protocol int, change ...func(*Config)) *conn.AppSubscriber {
	t.Helper()
	c := Config{Addresses: []string{addr}, Protocol: protocol, DialTimeout: time.Second, CommandTimeout: time.Second}
	for _, f := range change {
		f(&c)
	}
	c, err := c.Settled()
	if err != nil {
		t.Fatal(err)
	}
	role := conn.NewAppSubscriber(c.options())
	t.Cleanup(func() { _ = role.Close(context.Background()) })
	return role
}

func testHub(t *testing.T, addr string, protocol int, change ...func(*Config)) (*hub, *hubLog) {
	t.Helper()
	return testHubPinging(t, testPing, addr, protocol, change...)
}

func testHubPinging(t *testing.T, ping time.Duration, addr string, protocol int, change ...func(*Config)) (*hub, *hubLog) {
	t.Helper()
	log := &hubLog{}
	h := newHub(testRole(t, addr, protocol, change...).OpenFeed, ping, log.hubEvents())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.close(ctx); err != nil {
			t.Error(err)
		}
	})
	return h, log
}

func listen(t *testing.T, h *hub, channel string) (*ear, func()) {
	t.Helper()
	e := &ear{}
	cancel, err := h.subscribe(t.Context(), channel, e)
	if err != nil {
		t.Fatalf("subscribe %q: %v", channel, err)
	}
	return e, cancel
}

func publish(t *testing.T, c *redis.Client, channel, payload string) {
	t.Helper()
	if err := c.Publish(t.Context(), channel, payload).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestASubscriptionThatReturnedHearsEveryLaterMessageInOrder(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		h, _ := testHub(t, s.Addr(), protocol)
		// Names of one to six characters: go-redis#3935 hung on them, go-redis#3839 lost frames.
		for _, channel := range []string{"a", "ab", "abc", "abcd", "abcde", "abcdef", "a longer name: {x}"} {
			e, _ := listen(t, h, channel)
			server := admin(t, s)
			var want []string
			for i := range 50 {
				want = append(want, fmt.Sprint(i))
				publish(t, server, channel, fmt.Sprint(i))
			}
			eventually(t, "all messages heard", func() bool { return len(e.all()) >= len(want) })
			if got := e.all(); !slices.Equal(got, want) {
				t.Errorf("channel %q heard %v", channel, got)
			}
		}
	})
}

func TestAllChannelsShareOneConnectionThatLivesOnlyWhileNeeded(t *testing.T) {
	s := testkit.StartRedis(t)
	h, _ := testHub(t, s.Addr(), 3)
	subscribers := func() int {
		list, err := admin(t, s).Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, b := range []byte(list) {
			if b == '\n' {
				n++
			}
		}
		return n
	}
	if n := subscribers(); n != 0 {
		t.Errorf("%d connections before the first subscription", n)
	}
	for range 3 {
		var cancels []func()
		for i := range 20 {
			_, cancel := listen(t, h, fmt.Sprint("channel", i%10))
			cancels = append(cancels, cancel)
		}
		if n := subscribers(); n != 1 {
			t.Errorf("%d connections for 10 channels, want 1", n)
		}
		for _, cancel := range cancels {
			cancel()
			cancel()
		}
		eventually(t, "the connection is gone with the last subscriber", func() bool { return subscribers() == 0 })
		eventually(t, "the goroutine is gone", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.done == nil })
	}
}

func TestALeftChannelIsLeftOnTheServerAndCanBeJoinedAgain(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		h, _ := testHub(t, s.Addr(), protocol)
		server := admin(t, s)
		_, keep := listen(t, h, "keep")
		defer keep()
		for range 20 {
			e, cancel := listen(t, h, "c")
			cancel()
			again, cancelAgain := listen(t, h, "c")
			publish(t, server, "c", "m")
			eventually(t, "the new subscription hears", func() bool { return again.has("m") })
			if e.has("m") {
				t.Error("heard after cancel")
			}
			cancelAgain()
		}
		eventually(t, "UNSUBSCRIBE has reached the server", func() bool {
			n, err := server.PubSubNumSub(t.Context(), "c").Result()
			return err == nil && n["c"] == 0
		})
	})
}

func TestPatternSubscriptionsAreToldTheChannel(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		h, log := testHub(t, s.Addr(), protocol)
		e, plain := &ear{}, &ear{}
		cancel, err := h.subscribePattern(t.Context(), "socket.io#/#*", e)
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		if _, err := h.subscribe(t.Context(), "socket.io#/#*", plain); err != nil {
			t.Fatal(err)
		}
		publish(t, admin(t, s), "socket.io#/#room#", "m")
		eventually(t, "heard", func() bool { return e.has("socket.io#/#room#=m") })
		killSubscribers(t, s)
		eventually(t, "back", func() bool { return slices.Contains(log.all(), "resubscribed") })
		publish(t, admin(t, s), "socket.io#/#room#", "n")
		eventually(t, "heard again", func() bool { return e.has("socket.io#/#room#=n") })
		if got := plain.all(); !slices.Equal(got, []string{"gap"}) {
			t.Errorf("the channel of the pattern's name heard %q", got)
		}
	})
}

// go-redis#1070: what was published during a reconnect is lost, and nobody is told.
func TestAKilledLinkIsToldOnceAndItsGapAfterTheServerHasConfirmed(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		h, log := testHub(t, s.Addr(), protocol)
		var ears []*ear
		for i := range 30 {
			e, _ := listen(t, h, fmt.Sprint("c", i))
			ears = append(ears, e)
		}
		server := admin(t, s)
		for round := 1; round <= 3; round++ {
			killSubscribers(t, s)
			eventually(t, "resubscribed", func() bool { return len(log.all()) == 2*round })
			for i, e := range ears {
				publish(t, server, fmt.Sprint("c", i), fmt.Sprint("after ", round))
				eventually(t, "heard", func() bool { return e.has(fmt.Sprint("after ", round)) })
			}
		}
		want := []string{"dropped", "resubscribed", "dropped", "resubscribed", "dropped", "resubscribed"}
		if got := log.all(); !slices.Equal(got, want) {
			t.Errorf("events %v", got)
		}
		for i, n := range log.counts {
			if n != 30 {
				t.Errorf("event %d counts %d channels", i, n)
			}
		}
		for _, e := range ears {
			if got := e.all(); !slices.Equal(got, []string{"gap", "after 1", "gap", "after 2", "gap", "after 3"}) {
				t.Errorf("heard %v", got)
			}
		}
	})
}

// redis/redis#7855, redigo#295: a link lost in silence went unnoticed for hours.
func TestASilentLinkIsFoundLostWithinTwoPingIntervals(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		p := testkit.StartProxy(t, s.Addr())
		const ping = time.Second
		h, log := testHubPinging(t, ping, p.Addr(), protocol)
		e, _ := listen(t, h, "c")
		eventually(t, "a PONG has come", func() bool { return time.Since(h.state().LastProof) < ping/8 })
		p.BlackHole(true)
		began := time.Now()
		eventually(t, "dropped", func() bool { return len(log.all()) > 0 })
		if took := time.Since(began); took > 3*ping { // the third is for a busy machine
			t.Errorf("found after %v, promised within %v", took, 2*ping)
		}
		if h.state().Connected {
			t.Error("healthy while the link is down")
		}
		publish(t, admin(t, s), "c", "missed")
		p.BlackHole(false) // the connections of meanwhile stay dead
		eventually(t, "resubscribed", func() bool { return len(log.all()) == 2 })
		healed := time.Since(began)
		publish(t, admin(t, s), "c", "m")
		eventually(t, "heard", func() bool { return e.has("m") })
		if got := e.all(); !slices.Equal(got, []string{"gap", "m"}) {
			t.Errorf("heard %v", got)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if gap := e.gaps[0]; gap < ping || gap > healed+ping {
			t.Errorf("gap of %v, the link was away for about %v", gap, healed)
		}
		if !slices.Equal(log.all(), []string{"dropped", "resubscribed"}) {
			t.Errorf("events %v", log.all())
		}
	})
}

func TestAnIdleLinkThatAnswersStays(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		h, log := testHub(t, s.Addr(), protocol)
		listen(t, h, "c")
		first := h.state().LastProof
		eventually(t, "several intervals have passed", func() bool { return h.state().LastProof.Sub(first) > 4*testPing })
		if got := log.all(); len(got) > 0 {
			t.Errorf("events %v on a healthy link", got)
		}
	})
}

func TestAServerThatComesBackIsFoundAndAnOutageIsToldOnce(t *testing.T) {
	s := testkit.StartRedis(t)
	h, log := testHub(t, s.Addr(), 3)
	e, _ := listen(t, h, "c")
	s.Kill()
	eventually(t, "dropped", func() bool { return len(log.all()) > 0 })
	_, err := h.subscribe(t.Context(), "other", &ear{})
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a new subscription while the server is down: %v, want its dial error", err)
	}
	s.Restart()
	eventually(t, "resubscribed", func() bool { return len(log.all()) == 2 })
	publish(t, admin(t, s), "c", "m")
	eventually(t, "heard", func() bool { return e.has("m") })
	if got := log.all(); !slices.Equal(got, []string{"dropped", "resubscribed"}) {
		t.Errorf("events %v", got)
	}
}

func TestADownServerIsNotAskedInATightLoop(t *testing.T) {
	s := testkit.StartRedis(t)
	var dials dialCounter
	h, log := testHub(t, s.Addr(), 3, func(c *Config) { c.Dial = dials.dial })
	listen(t, h, "c")
	s.Kill()
	eventually(t, "dropped", func() bool { return len(log.all()) > 0 })
	before := dials.count()
	began := time.Now()
	eventually(t, "a second and a half have passed", func() bool { return time.Since(began) > 1500*time.Millisecond })
	// 10, 20, 40 … 640 ms, each at least by half: 8 dials take 640 ms or more.
	if n := dials.count() - before; n < 2 || n > 12 {
		t.Errorf("%d dials in 1.5 s", n)
	}
}

func TestARefusedSubscribeIsReturnedAndHarmsNobodyElse(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		server := admin(t, s)
		user := fmt.Sprint("limited", protocol)
		if err := server.Do(t.Context(), "ACL", "SETUSER", user, "on", ">pw", "+@all", "~*", "resetchannels", "&ok*").Err(); err != nil {
			t.Fatal(err)
		}
		h, log := testHub(t, s.Addr(), protocol, func(c *Config) { c.Username, c.Password = user, "pw" })
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { // written in batches with the refused ones
				if _, err := h.subscribe(t.Context(), fmt.Sprint("ok", i), &ear{}); err != nil {
					t.Errorf("an allowed channel: %v", err)
				}
			})
			wg.Go(func() {
				_, err := h.subscribe(t.Context(), fmt.Sprint("secret", i), &ear{})
				if err == nil || !redis.HasErrorPrefix(err, "NOPERM") {
					t.Errorf("a forbidden channel: %v, want NOPERM", err)
				}
			})
		}
		wg.Wait()
		if got := h.state(); got.Channels != 20 || !got.Connected {
			t.Errorf("state %+v, want the 20 allowed channels", got)
		}
		if len(log.all()) > 0 {
			t.Errorf("events %v", log.all())
		}
	})
}

func TestTheEndOfTheContextEndsTheWaitAndLeavesNothing(t *testing.T) {
	s := testkit.StartRedis(t)
	p := testkit.StartProxy(t, s.Addr())
	h, _ := testHub(t, p.Addr(), 3)
	p.BlackHole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := h.subscribe(ctx, "c", &ear{})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if n := h.state().Channels; n != 0 {
		t.Errorf("%d channels stay registered", n)
	}
}

func TestClosingEndsWaitsAndSubscriptions(t *testing.T) {
	s := testkit.StartRedis(t)
	p := testkit.StartProxy(t, s.Addr())
	h, _ := testHub(t, p.Addr(), 3)
	e, cancel := listen(t, h, "c")
	p.BlackHole(true)
	waiting := make(chan error, 1)
	go func() {
		_, err := h.subscribe(t.Context(), "d", &ear{})
		waiting <- err
	}()
	eventually(t, "the second one waits", func() bool { return h.state().Channels == 2 })
	if err := h.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("waiting subscriber got %v", err)
	}
	if _, err := h.subscribe(t.Context(), "c", e); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	cancel()
	if err := h.close(t.Context()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestClosingAHubThatWasNeverUsedDoesNothing(t *testing.T) {
	h := newHub(func(context.Context) (*redis.PubSub, error) { t.Error("opened"); return nil, nil }, testPing, hubEvents{})
	if err := h.close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTenThousandChannelsAreConfirmedAgainInUnderASecond(t *testing.T) {
	s := testkit.StartRedis(t)
	h, log := testHub(t, s.Addr(), 3)
	const n = 10_000
	ears := make([]*ear, n)
	var wg sync.WaitGroup
	for i := range n {
		ears[i] = &ear{}
		wg.Go(func() {
			if _, err := h.subscribe(t.Context(), fmt.Sprint("channel:", i), ears[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// The best of some rounds: the machine may be busy with something else.
	best := time.Hour
	rounds := 0
	for best > time.Second && rounds < 5 {
		rounds++
		began := time.Now()
		killSubscribers(t, s)
		eventually(t, "resubscribed", func() bool { return len(log.all()) == 2*rounds })
		best = min(best, time.Since(began))
	}
	t.Logf("10,000 channels confirmed again in %v", best)
	if best > time.Second && !raceEnabled {
		t.Errorf("took %v, want less than a second", best)
	}
	for _, counted := range log.counts {
		if counted != n {
			t.Errorf("counted %v channels", log.counts)
		}
	}
	for _, i := range []int{0, 999, 1000, 5000, n - 1} {
		publish(t, admin(t, s), fmt.Sprint("channel:", i), "m")
		eventually(t, "heard", func() bool { return ears[i].has("m") })
		if gaps := len(ears[i].all()) - 1; gaps != rounds {
			t.Errorf("channel %d was told %d gaps in %d outages", i, gaps, rounds)
		}
	}
}
