package redismodule

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// closableBroadcast lets the suite close one client.
type closableBroadcast struct {
	semantic.BroadcastChannel
	services *Services
}

func (c closableBroadcast) Close() { _ = c.services.Close(context.Background()) }

var broadcastSpaces atomic.Int64

// broadcastOver is the suite's harness of the real service behind a proxy.
func broadcastOver(address string, proxy *testkit.Proxy, protocol int) testkit.Backend[semantic.BroadcastChannel] {
	return testkit.Backend[semantic.BroadcastChannel]{
		New: func(t testkit.T, n int) []semantic.BroadcastChannel {
			var all []semantic.BroadcastChannel
			for _, s := range openServices(t, n, Config{
				Addresses: []string{address}, Protocol: protocol, PingInterval: time.Second,
				Namespace: fmt.Sprint("b", broadcastSpaces.Add(1)),
			}, nil) {
				all = append(all, closableBroadcast{s.Broadcast, s})
			}
			return all
		},
		Advance: time.Sleep,
		Fault: func(t testkit.T, f testkit.Fault) (heal func()) {
			if f == testkit.FaultLoseReply { // the subscriber's frames are replies to nobody
				return proxy.DropNextReply(testkit.CommandNamed("PUBLISH")).Disarm
			}
			heal = proxy.Inject(t, f)
			t.Cleanup(heal)
			return heal
		},
	}
}

func TestBroadcastChannelConformsOnRedis(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		p := testkit.StartProxy(t, s.Addr())
		testkit.RunBroadcastChannel(t, broadcastOver(p.Addr(), p, protocol))
	})
}

func TestBroadcastChannelConformsOnEmbeddedRedis(t *testing.T) {
	p := testkit.StartProxy(t, testkit.StartEmbeddedRedis(t).Addr())
	testkit.RunBroadcastChannel(t, broadcastOver(p.Addr(), p, 3))
}

func TestBroadcastChannelConformsOnRedisCluster(t *testing.T) {
	c := testkit.StartRedisCluster(t)
	testkit.RunBroadcastChannel(t, testkit.Backend[semantic.BroadcastChannel]{
		New: func(t testkit.T, n int) []semantic.BroadcastChannel {
			var all []semantic.BroadcastChannel
			for _, s := range openServices(t, n, Config{
				Mode: Cluster, Addresses: c.Addrs(), PingInterval: time.Second, Namespace: fmt.Sprint("b", broadcastSpaces.Add(1)),
			}, nil) {
				all = append(all, closableBroadcast{s.Broadcast, s})
			}
			return all
		},
		Advance: time.Sleep,
	})
}

// broadcastServices opens n replicas that log to the returned observer.
func broadcastServices(t *testing.T, n int, c Config) ([]*Services, *observer.ObservedLogs) {
	t.Helper()
	logs, seen := observer.New(zapcore.DebugLevel)
	signals := observability.New(zap.New(testkit.RecordSignals(logs)))
	var all []*Services
	for i := range n {
		c.InstanceID, c.PingInterval = fmt.Sprint("replica-", i), testPing
		s, err := Open(c, signals)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		all = append(all, s)
	}
	return all, seen
}

func signalled(seen *observer.ObservedLogs, key observability.Key) []map[string]any {
	var all []map[string]any
	for _, e := range seen.All() {
		if fields := e.ContextMap(); fields["event"] == string(key) {
			all = append(all, fields)
		}
	}
	return all
}

// tape keeps what a subscription gets, in order.
type tape struct {
	mu  sync.Mutex
	got []string
}

func (p *tape) add(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, s)
}

func (p *tape) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

func (p *tape) has(s string) bool { return slices.Contains(p.all(), s) }

func record(t *testing.T, b semantic.BroadcastChannel, channel string, opts ...semantic.SubscribeOption) *tape {
	t.Helper()
	p := &tape{}
	s, err := b.Subscribe(t.Context(), channel,
		func(_ context.Context, m semantic.Message) { p.add(string(m.Payload)) },
		append(opts, semantic.WithGapHandler(func(_ context.Context, g semantic.Gap) { p.add("gap:" + string(g.Reason)) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Unsubscribe)
	return p
}

// go-redis#1070: a message published during a reconnect is lost and nobody is told.
func TestAMessagePublishedWhileTheLinkIsAwayIsToldAsAGap(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		p := testkit.StartProxy(t, s.Addr())
		near, _ := broadcastServices(t, 1, Config{Addresses: []string{s.Addr()}, Protocol: protocol})
		far, seen := broadcastServices(t, 1, Config{Addresses: []string{p.Addr()}, Protocol: protocol})
		got := record(t, far[0].Broadcast, "c")
		heal := p.Inject(nil, testkit.FaultDown)
		eventually(t, "dropped", func() bool { return len(signalled(seen, observability.SubscriptionDropped)) == 1 })
		if err := near[0].Broadcast.Publish(t.Context(), "c", "missed"); err != nil {
			t.Fatal(err)
		}
		heal()
		eventually(t, "resubscribed", func() bool { return len(signalled(seen, observability.SubscriptionResubscribed)) == 1 })
		if err := near[0].Broadcast.Publish(t.Context(), "c", "after"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "heard", func() bool { return got.has(`"after"`) })
		if all := got.all(); !slices.Equal(all, []string{"gap:LINK_LOST", `"after"`}) {
			t.Errorf("got %q", all)
		}
		fields := signalled(seen, observability.SubscriptionResubscribed)[0]
		if ms, ok := fields["gap_ms"].(int64); !ok || ms <= 0 {
			t.Errorf("resubscribed says %v", fields)
		}
	})
}

// socket.io-redis-adapter#522: one bad frame throws in the reader.
func TestAMessageThatCannotBeDecodedIsCountedAndTheNextOneDelivered(t *testing.T) {
	s := testkit.StartRedis(t)
	services, seen := broadcastServices(t, 1, Config{Addresses: []string{s.Addr()}})
	b := services[0].Broadcast
	got := record(t, b, "c")
	bad := []string{
		"", "x", "{}", "\xff\x00", "2 replica-0 S.1 1", "1 replica-0", "1 replica-0 S.1", "1  S.1 1",
		"1 replica-0 .1 1", "1 replica-0 S.x 1", "1 replica-0 S.1 ", "1 replica-0 S.1 {", strings.Repeat(" ", 1000),
	}
	for _, text := range bad {
		s.Must("PUBLISH", b.key("c"), text)
	}
	if err := b.Publish(t.Context(), "c", "good"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the good one is delivered", func() bool { return got.has(`"good"`) })
	if all := got.all(); len(all) != 1 {
		t.Errorf("got %q", all)
	}
	signals := signalled(seen, observability.SubscriptionBadMessage)
	if len(signals) != len(bad) {
		t.Errorf("%d signals for %d bad messages", len(signals), len(bad))
	}
	for _, fields := range signals {
		if fields["channel"] != "c" || fields["error"] == "" {
			t.Errorf("signal %v", fields)
		}
	}
}

// go-redis#887, go-redis#2267, redpandadata/connect#4284: a full buffer of 100 loses
// messages with a log line at best.
func TestAnOverflowIsCountedExactlyAndSignalled(t *testing.T) {
	s := testkit.StartRedis(t)
	services, seen := broadcastServices(t, 1, Config{Addresses: []string{s.Addr()}})
	b := services[0].Broadcast
	release, blocked := make(chan struct{}), make(chan struct{}, 1)
	var free sync.Once
	defer free.Do(func() { close(release) })
	var missed, handled atomic.Int64
	sub, err := b.Subscribe(t.Context(), "c", func(context.Context, semantic.Message) {
		select {
		case blocked <- struct{}{}:
		default:
		}
		<-release
		handled.Add(1)
	}, semantic.WithQueue(100), semantic.WithGapHandler(func(_ context.Context, g semantic.Gap) { missed.Add(int64(g.Missed)) }))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	defer free.Do(func() { close(release) })
	other := record(t, b, "c")
	const published = 500
	for i := range published {
		if err := b.Publish(t.Context(), "c", i); err != nil {
			t.Fatal(err)
		}
	}
	<-blocked
	eventually(t, "another subscription has all", func() bool { return len(other.all()) == published })
	eventually(t, "the overflow is signalled while the handler is stuck", func() bool {
		return len(signalled(seen, observability.SubscriptionOverflow)) > 0
	})
	free.Do(func() { close(release) })
	eventually(t, "every message is handled or told as missed", func() bool { return handled.Load()+missed.Load() == published })
	if n := missed.Load(); n < published-110 {
		t.Errorf("%d missed with a queue of 100 and a stuck handler", n)
	}
	total := int64(0)
	for _, fields := range signalled(seen, observability.SubscriptionOverflow) {
		total += fields["missed"].(int64)
	}
	if total != missed.Load() {
		t.Errorf("signals count %d, the gap handler %d", total, missed.Load())
	}
}

// redis/redis#3893, redis-py#1261: the server cuts off a subscriber that reads slowly
// or is sent too much: 32 MB, or 8 MB for a minute.
func TestAStuckHandlerDoesNotLetTheServersOutputBufferGrow(t *testing.T) {
	s := testkit.StartRedis(t, testkit.WithRedisConfig("client-output-buffer-limit", "pubsub 1mb 512kb 1"))
	services, seen := broadcastServices(t, 1, Config{Addresses: []string{s.Addr()}})
	b := services[0].Broadcast
	release := make(chan struct{})
	sub, err := b.Subscribe(t.Context(), "c", func(context.Context, semantic.Message) { <-release }, semantic.WithQueue(8))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	defer close(release)
	other := record(t, b, "d")
	for range 200 { // 20 MB past a handler that takes none of it
		if err := b.Publish(t.Context(), "c", strings.Repeat("x", 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Publish(t.Context(), "d", "end"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another channel is served", func() bool { return other.has(`"end"`) })
	if n := signalled(seen, observability.SubscriptionDropped); len(n) > 0 {
		t.Errorf("the server cut the link: %v", n)
	}
	if got := other.all(); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

func TestPublishRefusesMoreThanTheConfiguredSizeBeforeAnyRoundTrip(t *testing.T) {
	s := testkit.StartRedis(t)
	p := testkit.StartProxy(t, s.Addr())
	services, _ := broadcastServices(t, 1, Config{Addresses: []string{p.Addr()}, MaxPayloadBytes: 1000})
	b := services[0].Broadcast
	if err := b.Publish(t.Context(), "c", strings.Repeat("x", 999)); !errors.Is(err, semantic.ErrTooLarge) { // two quotes more
		t.Errorf("1,001 bytes: %v", err)
	}
	if n := p.Commands("PUBLISH"); n != 0 {
		t.Errorf("%d PUBLISH sent", n)
	}
	if err := b.Publish(t.Context(), "c", strings.Repeat("x", 998)); err != nil {
		t.Errorf("1,000 bytes: %v", err)
	}
	if n := p.Commands(); n != 1 {
		t.Errorf("%d round trips for one publish", n)
	}
}

// jedis#3187, go-redis#2339: a client that resends after a lost reply delivers twice.
func TestAPublishWithALostReplyIsSentOnce(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		p := testkit.StartProxy(t, s.Addr())
		near, _ := broadcastServices(t, 1, Config{Addresses: []string{s.Addr()}, Protocol: protocol})
		far, _ := broadcastServices(t, 1, Config{Addresses: []string{p.Addr()}, Protocol: protocol})
		got := record(t, near[0].Broadcast, "c")
		p.DropNextReply(testkit.CommandNamed("PUBLISH"))
		if err := far[0].Broadcast.Publish(t.Context(), "c", "m"); !errors.Is(err, semantic.ErrUnknown) {
			t.Errorf("a lost reply: %v, want ErrUnknown", err)
		}
		p.DropNextRequest(testkit.CommandNamed("PUBLISH"))
		if err := far[0].Broadcast.Publish(t.Context(), "c", "n"); !errors.Is(err, semantic.ErrUnknown) {
			t.Errorf("a lost request: %v, want ErrUnknown", err)
		}
		if err := far[0].Broadcast.Publish(t.Context(), "c", "end"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end", func() bool { return got.has(`"end"`) })
		if all := got.all(); !slices.Equal(all, []string{`"m"`, `"end"`}) {
			t.Errorf("got %q, want the message once", all)
		}
		if n := p.Commands("PUBLISH"); n > 3 {
			t.Errorf("%d PUBLISH for 3 calls", n)
		}
	})
}

func TestAPanicIsSignalledWithItsChannel(t *testing.T) {
	s := testkit.StartRedis(t)
	services, seen := broadcastServices(t, 1, Config{Addresses: []string{s.Addr()}})
	b := services[0].Broadcast
	sub, err := b.Subscribe(t.Context(), "c", func(context.Context, semantic.Message) { panic("broken handler") })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if err := b.Publish(t.Context(), "c", 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "signalled", func() bool { return len(signalled(seen, observability.SubscriptionPanicked)) == 1 })
	fields := signalled(seen, observability.SubscriptionPanicked)[0]
	if fields["channel"] != "c" || !strings.Contains(fields["error"].(string), "broken handler") {
		t.Errorf("signal %v", fields)
	}
}

func TestClosingEndsHandlersAndBoundsTheWaitForThem(t *testing.T) {
	s := testkit.StartRedis(t)
	services, _ := broadcastServices(t, 1, Config{Addresses: []string{s.Addr()}})
	b := services[0].Broadcast
	running, release := make(chan struct{}), make(chan struct{})
	var told atomic.Bool
	if _, err := b.Subscribe(t.Context(), "c", func(ctx context.Context, _ semantic.Message) {
		close(running)
		<-ctx.Done()
		told.Store(true)
		<-release
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), "c", 1); err != nil {
		t.Fatal(err)
	}
	<-running
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close with a stuck handler: %v", err)
	}
	close(release)
	eventually(t, "the handler was told", told.Load)
	if err := b.Publish(t.Context(), "c", 1); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("publish after close: %v", err)
	}
	if _, err := b.Subscribe(t.Context(), "c", func(context.Context, semantic.Message) {}); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("subscribe after close: %v", err)
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add("1 replica-0 S.1 {}", "host-1", "TOKEN", uint64(7), []byte(`{"a":1}`))
	f.Fuzz(func(t *testing.T, text, origin, service string, number uint64, payload []byte) {
		if e, err := decodeEnvelope(text); err == nil {
			if again, err := decodeEnvelope(string(e.encode())); err != nil || again.origin != e.origin || again.service != e.service || again.number != e.number || !bytes.Equal(again.payload, e.payload) {
				t.Errorf("%q decodes to %+v and then to %+v, %v", text, e, again, err)
			}
		} else if !errors.Is(err, semantic.ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
		if !instanceForm.MatchString(origin) || service == "" || strings.ContainsAny(service, " .") {
			return
		}
		e := envelope{origin: origin, service: service, number: number, payload: payload}
		if got, err := decodeEnvelope(string(e.encode())); err != nil || got.origin != origin || got.service != service || got.number != number || !bytes.Equal(got.payload, payload) {
			t.Errorf("%+v came back as %+v, %v", e, got, err)
		}
	})
}
