package semantic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// BroadcastChannel sends a message to every replica, the sender included: cache
// invalidation, an event for all. Delivery is at most once; what was published while
// a replica's link was down is lost to it, and it is told so ([WithGapHandler]).
//
// Safe for concurrent use. Every method returns [ErrClosed] after close.
type BroadcastChannel interface {
	// Publish sends payload, encoded as JSON, to every subscription of channel. One
	// round trip. Errors match [ErrInvalidArgument] (also for a payload that cannot
	// be encoded), [ErrTooLarge], [ErrUnavailable] or [ErrUnknown] (it may have
	// been delivered). It is never sent twice.
	Publish(ctx context.Context, channel string, payload any) error

	// Subscribe registers handler for channel and returns once the server has
	// confirmed it; ctx bounds that wait only. Messages of a channel arrive in
	// order, one at a time. The subscription survives reconnects and ends with
	// [Subscription.Unsubscribe] or when the service closes. Errors match
	// [ErrInvalidArgument], [ErrUnavailable] or [ErrClosed]; nothing stays
	// registered then.
	Subscribe(ctx context.Context, channel string, handler MessageHandler, opts ...SubscribeOption) (Subscription, error)
}

// Message is one broadcast as a handler receives it.
type Message struct {
	Channel string          // the caller's channel name, without namespace
	Payload json.RawMessage // the JSON of what was published
	Origin  string          // instance id of the publisher
	Self    bool            // whether this very service published it
}

// MessageHandler handles one message. Its context ends when the subscription does.
// A panic is counted and isolated.
type MessageHandler func(ctx context.Context, m Message)

// Subscription is one registered handler.
type Subscription interface {
	// Unsubscribe removes the handler, waits for a running call of it to return and
	// guarantees that it never runs again. Called from inside its own handler it does
	// not wait for that call. Calling it twice is fine.
	Unsubscribe()
}

// Gap is a span in which a subscription may have missed messages.
type Gap struct {
	Channel  string
	Reason   GapReason
	Duration time.Duration // from the last proof of life to the confirmation; zero for an overflow
	Missed   int           // messages dropped by an overflow; unknown (zero) for a lost link
}

// GapReason says why messages may have been missed.
type GapReason string

const (
	// GapLinkLost: the link to the server was down.
	GapLinkLost GapReason = "LINK_LOST"
	// GapOverflow: the handler was slower than the messages and its queue was full.
	GapOverflow GapReason = "OVERFLOW"
)

// SubscribeOptions are the resolved options of a Subscribe; see [ResolveSubscribeOptions].
type SubscribeOptions struct {
	SkipSelf bool
	Queue    int
	OnGap    func(ctx context.Context, g Gap)
}

// SubscribeOption changes one Subscribe.
type SubscribeOption func(*SubscribeOptions)

// DefaultQueue is how many messages a subscription buffers for its handler.
const DefaultQueue = 1024

// SkipSelf leaves out what this very service published.
func SkipSelf() SubscribeOption { return func(o *SubscribeOptions) { o.SkipSelf = true } }

// WithQueue buffers up to n messages for a slow handler, 1 to 1,048,576; the default
// is [DefaultQueue]. What does not fit is dropped, counted and told as a [Gap].
func WithQueue(n int) SubscribeOption { return func(o *SubscribeOptions) { o.Queue = n } }

// WithGapHandler calls f, in order with the messages, whenever some may have been
// missed: after a lost link is confirmed again, and after an overflow. A local
// cache flushes there.
func WithGapHandler(f func(ctx context.Context, g Gap)) SubscribeOption {
	return func(o *SubscribeOptions) { o.OnGap = f }
}

// ResolveSubscribeOptions applies opts over the defaults and checks channel, handler
// and options. For implementations of [BroadcastChannel].
func ResolveSubscribeOptions(operation, channel string, handler MessageHandler, opts ...SubscribeOption) (SubscribeOptions, error) {
	o := SubscribeOptions{Queue: DefaultQueue}
	if err := applyOptions(operation, &o, opts); err != nil {
		return o, err
	}
	if err := ValidateName(operation, "channel", channel); err != nil {
		return o, err
	}
	if handler == nil {
		return o, &ArgumentError{Operation: operation, Argument: "handler", Value: "nil", Allowed: "a function"}
	}
	if o.Queue < 1 || o.Queue > 1<<20 {
		return o, &ArgumentError{Operation: operation, Argument: "queue", Value: o.Queue, Allowed: "1 to 1048576"}
	}
	return o, nil
}

// EncodePayload turns a payload into JSON for Publish. It returns an
// [*ArgumentError] when it cannot be encoded, and an error matching [ErrTooLarge]
// above limit bytes. For implementations of [BroadcastChannel].
func EncodePayload(operation, channel string, payload any, limit int) (json.RawMessage, error) {
	if err := ValidateName(operation, "channel", channel); err != nil {
		return nil, err
	}
	b, err := json.Marshal(payload)
	if err != nil {
		return nil, &ArgumentError{Operation: operation, Argument: "payload", Value: fmt.Sprintf("%T", payload), Allowed: "a value that encodes as JSON: " + err.Error()}
	}
	if len(b) > limit {
		return nil, fmt.Errorf("%s %q: payload of %d bytes: %w: at most %d bytes", operation, channel, len(b), ErrTooLarge, limit)
	}
	return b, nil
}

// SubscribeTo subscribes a handler of typed payloads. A message that does not decode
// as T goes to onBad, which may be nil, and the next one is handled as usual.
func SubscribeTo[T any](ctx context.Context, b BroadcastChannel, channel string, handler func(ctx context.Context, payload T, m Message), onBad func(m Message, err error), opts ...SubscribeOption) (Subscription, error) {
	if handler == nil {
		return b.Subscribe(ctx, channel, nil, opts...)
	}
	return b.Subscribe(ctx, channel, func(ctx context.Context, m Message) {
		var payload T
		if err := json.Unmarshal(m.Payload, &payload); err != nil {
			if onBad != nil {
				onBad(m, fmt.Errorf("channel %q: %w: %w", channel, ErrCorrupt, err))
			}
			return
		}
		handler(ctx, payload, m)
	}, opts...)
}
