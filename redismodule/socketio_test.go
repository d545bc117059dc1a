package redismodule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func testAdapter(t *testing.T, address string, protocol int) (*SocketIOAdapter, *observer.ObservedLogs) {
	t.Helper()
	config, err := Config{Addresses: []string{address}, Protocol: protocol, PingInterval: testPing, MaxPayloadBytes: 1000}.Settled()
	if err != nil {
		t.Fatal(err)
	}
	logs, seen := observer.New(zapcore.DebugLevel)
	pub, sub := conn.NewSocketIOPublisher(config.options()), conn.NewSocketIOSubscriber(config.options())
	a := newSocketIOAdapter(config, pub, sub, observability.New(zap.New(testkit.RecordSignals(logs))))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(a.close(ctx), pub.Close(ctx), sub.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return a, seen
}

// heard keeps what a Socket.IO handler gets.
func heard() (*tape, func(channel string, message []byte)) {
	p := &tape{}
	return p, func(channel string, message []byte) { p.add(channel + "=" + string(message)) }
}

func TestTheSocketIOAdapterCarriesAnyBytesOnTheProtocolsOwnChannels(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		a, _ := testAdapter(t, s.Addr(), protocol)
		b, _ := testAdapter(t, s.Addr(), protocol)
		room, onRoom := heard()
		all, onAny := heard()
		one, err := a.Subscribe(t.Context(), "socket.io#/#room#", onRoom)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.PSubscribe(t.Context(), "socket.io#/#*", onAny); err != nil {
			t.Fatal(err)
		}
		binary := "\x00\xff\r\n{not json"
		if err := b.Publish(t.Context(), "socket.io#/#room#", []byte(binary)); err != nil {
			t.Fatal(err)
		}
		// A replica in another language publishes without Coord.
		s.Must("PUBLISH", "socket.io#/#other#", "m")
		eventually(t, "the pattern gets both", func() bool { return len(all.all()) == 2 })
		eventually(t, "the channel gets its own", func() bool { return len(room.all()) == 1 })
		if got := all.all(); !slices.Equal(got, []string{"socket.io#/#room#=" + binary, "socket.io#/#other#=m"}) {
			t.Errorf("the pattern got %q", got)
		}
		if n, err := b.Subscribers(t.Context(), "socket.io#/#room#"); n != 1 || err != nil {
			t.Errorf("Subscribers: %d, %v", n, err)
		}
		one.Unsubscribe()
		eventually(t, "nobody subscribes any more", func() bool {
			n, err := b.Subscribers(t.Context(), "socket.io#/#room#")
			return n == 0 && err == nil
		})
	})
}

func TestTheSocketIOAdapterSignalsALostSubscriberLinkOnceAndItsReturn(t *testing.T) {
	s := testkit.StartRedis(t)
	a, seen := testAdapter(t, s.Addr(), 3)
	got, on := heard()
	if _, err := a.Subscribe(t.Context(), "c", on); err != nil {
		t.Fatal(err)
	}
	killSubscribers(t, s)
	eventually(t, "reconnected", func() bool { return len(signalled(seen, observability.AdapterReconnected)) == 1 })
	lost := signalled(seen, observability.AdapterDisconnected)
	if len(lost) != 1 || lost[0]["role"] != "subscriber" {
		t.Errorf("disconnected signals %v", lost)
	}
	if n := len(signalled(seen, observability.SubscriptionDropped)); n > 0 {
		t.Errorf("the adapter's link raised the broadcast's signal %d times", n)
	}
	if err := a.Publish(t.Context(), "c", []byte("m")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "heard", func() bool { return got.has("c=m") })
}

func TestTheSocketIOAdapterSignalsFailingPublishesOnceAndTheirEnd(t *testing.T) {
	s := testkit.StartRedis(t)
	p := testkit.StartProxy(t, s.Addr())
	a, seen := testAdapter(t, p.Addr(), 3)
	if err := a.Publish(t.Context(), "c", []byte("m")); err != nil {
		t.Fatal(err)
	}
	heal := p.Inject(nil, testkit.FaultDown)
	for range 3 {
		err := a.Publish(t.Context(), "c", []byte("m"))
		if !errors.Is(err, semantic.ErrUnavailable) && !errors.Is(err, semantic.ErrUnknown) {
			t.Errorf("publish while down: %v", err)
		}
	}
	heal()
	eventually(t, "publishing works again", func() bool { return a.Publish(t.Context(), "c", []byte("m")) == nil })
	for _, key := range []observability.Key{observability.AdapterDisconnected, observability.AdapterReconnected} {
		if fields := signalled(seen, key); len(fields) != 1 || fields[0]["role"] != "publisher" {
			t.Errorf("%s: %v", key, fields)
		}
	}
}

// socket.io-redis-adapter#522: one bad frame throws in the reader and ends the process.
func TestAPanickingSocketIOHandlerLosesThatMessageOnly(t *testing.T) {
	s := testkit.StartRedis(t)
	a, seen := testAdapter(t, s.Addr(), 3)
	got, on := heard()
	var calls atomic.Int32
	if _, err := a.Subscribe(t.Context(), "c", func(channel string, message []byte) {
		if calls.Add(1) == 1 {
			panic("undecodable")
		}
		on(channel, message)
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := a.Publish(t.Context(), "c", []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the others are handled", func() bool { return slices.Equal(got.all(), []string{"c=1", "c=2"}) })
	if n := len(signalled(seen, observability.SubscriptionPanicked)); n != 1 {
		t.Errorf("%d panics signalled", n)
	}
}

func TestTheSocketIOAdapterRefusesBadInputAndCallsAfterClose(t *testing.T) {
	s := testkit.StartRedis(t)
	p := testkit.StartProxy(t, s.Addr())
	a, _ := testAdapter(t, p.Addr(), 3)
	_, on := heard()
	for what, call := range map[string]func() error{
		"publish without channel":   func() error { return a.Publish(t.Context(), "", nil) },
		"subscribe without handler": func() error { _, err := a.Subscribe(t.Context(), "c", nil); return err },
		"subscribe without channel": func() error { _, err := a.Subscribe(t.Context(), "", on); return err },
		"psubscribe, long pattern": func() error {
			_, err := a.PSubscribe(t.Context(), strings.Repeat("x", semantic.MaxKeyBytes+1), on)
			return err
		},
		"count without channel": func() error { _, err := a.Subscribers(t.Context(), ""); return err },
	} {
		if err := call(); !errors.Is(err, semantic.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := a.Publish(t.Context(), "c", make([]byte, 1001)); !errors.Is(err, semantic.ErrTooLarge) {
		t.Errorf("1,001 bytes: %v", err)
	}
	if n := p.Connections(); n > 0 {
		t.Errorf("%d connections for refused calls", n)
	}
	if err := a.close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := a.Publish(t.Context(), "c", nil); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("publish after close: %v", err)
	}
	if _, err := a.Subscribe(t.Context(), "c", on); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("subscribe after close: %v", err)
	}
	if _, err := a.Subscribers(t.Context(), "c"); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("count after close: %v", err)
	}
}
