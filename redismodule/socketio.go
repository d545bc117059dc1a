package redismodule

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
)

// socketIOQueue is how many messages of one subscription wait for its handler.
const socketIOQueue = 4096

// SocketIOAdapter carries the bytes of a Socket.IO Redis adapter: what an adapter
// factory needs of Redis, on two connections of its own. Channel names are used as
// they are, without the namespace, because they are the Socket.IO protocol's and
// shared with replicas in other languages.
//
// It is the one sanctioned way to Redis outside the services and of no use for
// anything else: application events belong on [semantic.BroadcastChannel]. Lost links
// are signalled as redis.adapter.disconnected and .reconnected. Safe for concurrent
// use; every method returns [semantic.ErrClosed] after close.
type SocketIOAdapter struct {
	publisher     *conn.SocketIOPublisher
	hub           *hub
	signals       *observability.Signals
	limit         int
	subscriptions subscriptions

	mu   sync.Mutex
	down time.Time // when publishing began to fail; zero while it works
}

// newSocketIOAdapter returns an inert adapter; config is settled. Its owner closes it
// before the two roles.
func newSocketIOAdapter(config Config, pub *conn.SocketIOPublisher, sub *conn.SocketIOSubscriber, signals *observability.Signals) *SocketIOAdapter {
	const role = "subscriber"
	h := newHub(sub.OpenFeed, config.PingInterval, hubEvents{
		dropped:      func(_ int, err error) { signals.AdapterDisconnected(role, err) },
		resubscribed: func(_ int, gap time.Duration) { signals.AdapterReconnected(role, gap) },
	})
	h.echoes = newEchoes(config, pub.Do)
	return &SocketIOAdapter{publisher: pub, hub: h, signals: signals, limit: config.MaxPayloadBytes}
}

// close ends every subscription and the subscriber connection, and waits for running
// handlers until ctx ends.
func (a *SocketIOAdapter) close(ctx context.Context) error {
	err := a.subscriptions.close(ctx)
	if hubErr := a.hub.close(ctx); err == nil {
		err = hubErr
	}
	return err
}

// Publish sends message to every subscriber of channel, once. One round trip. Errors
// match [semantic.ErrInvalidArgument], [semantic.ErrTooLarge] (above
// Config.MaxPayloadBytes), [semantic.ErrUnavailable] or [semantic.ErrUnknown] (it may
// have been delivered).
func (a *SocketIOAdapter) Publish(ctx context.Context, channel string, message []byte) error {
	const op = "socketio.publish"
	if err := semantic.ValidateName(op, "channel", channel); err != nil {
		return err
	}
	if len(message) > a.limit {
		return fmt.Errorf("%s %q: message of %d bytes: %w: at most %d bytes", op, channel, len(message), semantic.ErrTooLarge, a.limit)
	}
	if a.subscriptions.isClosed() {
		return fmt.Errorf("%s %q: %w", op, channel, semantic.ErrClosed)
	}
	_, err := a.publisher.Do(ctx, conn.Op{Name: op, Key: channel}, "PUBLISH", channel, message)
	if ctx.Err() == nil { // a caller's own end says nothing of the link
		a.watch(err)
	}
	return err
}

// Subscribers returns how many connections of the server that answers subscribe to
// channel, which is how a Socket.IO adapter counts its peers. Patterns do not count.
// One round trip, errors as for Publish.
func (a *SocketIOAdapter) Subscribers(ctx context.Context, channel string) (int, error) {
	const op = "socketio.subscribers"
	if err := semantic.ValidateName(op, "channel", channel); err != nil {
		return 0, err
	}
	if a.subscriptions.isClosed() {
		return 0, fmt.Errorf("%s %q: %w", op, channel, semantic.ErrClosed)
	}
	reply, err := a.publisher.Do(ctx, conn.Op{Name: op, Key: channel, ReadOnly: true}, "PUBSUB", "NUMSUB", channel)
	if err != nil {
		return 0, err
	}
	if pair, ok := reply.([]any); ok && len(pair) == 2 {
		if n, ok := pair[1].(int64); ok {
			return int(n), nil
		}
	}
	return 0, malformed(conn.Op{Name: op, Key: channel}, reply)
}

// Subscribe calls handler for every message of channel, in order and one at a time,
// and returns once the server has confirmed it; ctx bounds that wait only. A slow
// handler delays nobody else: up to 4,096 messages wait for it, more are dropped and
// signalled as redis.subscription.overflow, a panic as
// redis.subscription.handler_panicked. The subscription survives reconnects. Errors
// match [semantic.ErrInvalidArgument], [semantic.ErrUnavailable] or
// [semantic.ErrClosed].
func (a *SocketIOAdapter) Subscribe(ctx context.Context, channel string, handler func(channel string, message []byte)) (semantic.Subscription, error) {
	return a.subscribe(ctx, "socketio.subscribe", topic{name: channel}, handler)
}

// PSubscribe is Subscribe for a glob-style pattern, such as "socket.io#/#*".
func (a *SocketIOAdapter) PSubscribe(ctx context.Context, pattern string, handler func(channel string, message []byte)) (semantic.Subscription, error) {
	return a.subscribe(ctx, "socketio.psubscribe", topic{name: pattern, pattern: true}, handler)
}

func (a *SocketIOAdapter) subscribe(ctx context.Context, op string, t topic, handler func(channel string, message []byte)) (semantic.Subscription, error) {
	if err := semantic.ValidateName(op, "channel", t.name); err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, &semantic.ArgumentError{Operation: op, Argument: "handler", Value: "nil", Allowed: "a function"}
	}
	handle := func(_ context.Context, m semantic.Message) { handler(m.Channel, m.Payload) }
	s, err := a.subscriptions.open(t.name, handle, semantic.SubscribeOptions{Queue: socketIOQueue}, semantic.DeliveryHooks{
		Overflow: func(missed int) { a.signals.SubscriptionOverflow(t.name, missed) },
		Panicked: func(err error) { a.signals.SubscriptionPanicked(t.name, err) },
	})
	if err != nil {
		return nil, subscribeError(op, t.name, err)
	}
	push := func(channel, message string) {
		s.delivery.Push(semantic.Message{Channel: channel, Payload: json.RawMessage(message)})
	}
	if err := s.join(a.hub.register(ctx, t, push, s.delivery.PushGap)); err != nil {
		return nil, subscribeError(op, t.name, err)
	}
	return s, nil
}

// watch signals the begin and the end of a time in which publishing fails. Nothing
// probes the publisher's links in between.
func (a *SocketIOAdapter) watch(err error) {
	const role = "publisher"
	a.mu.Lock()
	was, now := a.down, time.Now()
	switch {
	case err == nil:
		a.down = time.Time{}
	case was.IsZero():
		a.down = now
	}
	a.mu.Unlock()
	switch {
	case err == nil && !was.IsZero():
		a.signals.AdapterReconnected(role, now.Sub(was))
	case err != nil && was.IsZero():
		a.signals.AdapterDisconnected(role, err)
	}
}
