package redismodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
)

// BroadcastChannelService is the [semantic.BroadcastChannel] on Redis pub/sub. A
// publish costs one round trip; all subscriptions of the process share one
// connection. Safe for concurrent use.
type BroadcastChannelService struct {
	core          *core
	hub           *hub
	self          string // names this very service in its messages
	sent          atomic.Uint64
	subscriptions subscriptions
}

var _ semantic.BroadcastChannel = (*BroadcastChannelService)(nil)

// newBroadcastChannelService returns a service on h, which others may use as well and
// which its owner closes after the service.
func newBroadcastChannelService(c *core, h *hub) *BroadcastChannelService {
	return &BroadcastChannelService{core: c, hub: h, self: newToken()}
}

// close ends every subscription, cancels the running handlers' contexts and waits for
// them until ctx ends.
func (b *BroadcastChannelService) close(ctx context.Context) error { return b.subscriptions.close(ctx) }

// Publish implements [semantic.BroadcastChannel].
func (b *BroadcastChannelService) Publish(ctx context.Context, channel string, payload any) (err error) {
	const op = "broadcast.publish"
	_, call := b.core.measure.publish.Begin(ctx, channel)
	defer func() { call.End(answerOr(err, true, "published", ""), err) }()
	body, err := semantic.EncodePayload(op, channel, payload, b.core.config.MaxPayloadBytes)
	if err != nil {
		return err
	}
	if b.subscriptions.isClosed() {
		return fmt.Errorf("%s %q: %w", op, channel, semantic.ErrClosed)
	}
	message := envelope{origin: b.core.config.InstanceID, service: b.self, number: b.sent.Add(1), payload: body}
	_, err = b.core.command.Do(ctx, conn.Op{Name: op, Key: channel}, "PUBLISH", b.key(channel), message.encode())
	return err
}

// Subscribe implements [semantic.BroadcastChannel].
func (b *BroadcastChannelService) Subscribe(ctx context.Context, channel string, handler semantic.MessageHandler, opts ...semantic.SubscribeOption) (_ semantic.Subscription, err error) {
	const op = "broadcast.subscribe"
	_, call := b.core.measure.subscribe.Begin(ctx, channel)
	defer func() { call.End(answerOr(err, true, "subscribed", ""), err) }()
	options, err := semantic.ResolveSubscribeOptions(op, channel, handler, opts...)
	if err != nil {
		return nil, err
	}
	signals, messages := b.core.signals, b.core.measure.messages
	checked := func(ctx context.Context, m semantic.Message) {
		if !json.Valid(m.Payload) {
			messages.Add(ctx, 1, "bad")
			signals.SubscriptionBadMessage(channel, fmt.Errorf("%w: payload is not JSON", semantic.ErrCorrupt))
			return
		}
		handler(ctx, m)
		messages.Add(ctx, 1, "delivered")
	}
	options.OnGap = b.countingGaps(options.OnGap)
	s, err := b.subscriptions.open(channel, checked, options, semantic.DeliveryHooks{
		Overflow: func(missed int) {
			messages.Add(context.Background(), missed, "overflow")
			signals.SubscriptionOverflow(channel, missed)
		},
		Panicked: func(err error) {
			messages.Add(context.Background(), 1, "panicked")
			signals.SubscriptionPanicked(channel, err)
		},
	})
	if err != nil {
		return nil, subscribeError(op, channel, err)
	}
	if err := s.join(b.hub.subscribe(ctx, b.key(channel), &broadcastSink{service: b, to: s})); err != nil {
		return nil, subscribeError(op, channel, err)
	}
	return s, nil
}

// countingGaps counts each gap before the subscriber hears of it.
func (b *BroadcastChannelService) countingGaps(tell func(context.Context, semantic.Gap)) func(context.Context, semantic.Gap) {
	gaps := b.core.measure.gaps
	if gaps == nil {
		return tell
	}
	return func(ctx context.Context, g semantic.Gap) {
		reason := "link_lost"
		if g.Reason == semantic.GapOverflow {
			reason = "overflow"
		}
		gaps.Add(ctx, 1, reason)
		if tell != nil {
			tell(ctx, g)
		}
	}
}

func (b *BroadcastChannelService) key(channel string) string {
	return b.core.keys.key(kindBroadcast, channel, "")
}

// subscribeError is what became of a subscription: nothing stays registered.
func subscribeError(op, channel string, err error) error {
	if errors.Is(err, semantic.ErrClosed) {
		return fmt.Errorf("%s %q: %w", op, channel, semantic.ErrClosed)
	}
	return &semantic.OutcomeError{Operation: op, Key: channel, Outcome: semantic.OutcomeUnavailable, Cause: err}
}

// broadcastSink queues the hub's messages for one subscription. Only the envelope's
// few header bytes are looked at on the reader's goroutine.
type broadcastSink struct {
	service *BroadcastChannelService
	to      *subscription
}

func (k *broadcastSink) onMessage(text string) {
	e, err := decodeEnvelope(text)
	if err != nil {
		k.service.core.measure.messages.Add(context.Background(), 1, "bad")
		k.service.core.signals.SubscriptionBadMessage(k.to.channel, err)
		return
	}
	k.to.delivery.Push(semantic.Message{
		Channel: k.to.channel, Payload: e.payload, Origin: e.origin, Self: e.service == k.service.self,
	})
}

func (k *broadcastSink) onGap(d time.Duration) { k.to.delivery.PushGap(d) }
