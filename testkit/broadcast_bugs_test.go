package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/wrkbelt/coord/semantic"
)

// broadcastBug is a channel that breaks one promise.
type broadcastBug struct {
	*BroadcastChannel
	publish   func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error
	subscribe func(c *BroadcastChannel, ctx context.Context, channel string, h semantic.MessageHandler, opts []semantic.SubscribeOption) (semantic.Subscription, error)
	// handler changes every handler.
	handler func(c *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler
	// options changes the resolved options.
	options func(o *semantic.SubscribeOptions)
	// end is called in place of Unsubscribe.
	end func(s semantic.Subscription)
}

type buggySubscription struct {
	semantic.Subscription
	end func(s semantic.Subscription)
}

func (s buggySubscription) Unsubscribe() { s.end(s.Subscription) }

func (b *broadcastBug) Publish(ctx context.Context, channel string, payload any) error {
	if b.publish != nil {
		return b.publish(b.BroadcastChannel, ctx, channel, payload)
	}
	return b.BroadcastChannel.Publish(ctx, channel, payload)
}

func (b *broadcastBug) Subscribe(ctx context.Context, channel string, h semantic.MessageHandler, opts ...semantic.SubscribeOption) (semantic.Subscription, error) {
	if b.handler != nil && h != nil {
		h = b.handler(b.BroadcastChannel, h)
	}
	if b.options != nil {
		opts = append(slices.Clone(opts), b.options)
	}
	subscribe := b.subscribe
	if subscribe == nil {
		subscribe = func(c *BroadcastChannel, ctx context.Context, channel string, h semantic.MessageHandler, opts []semantic.SubscribeOption) (semantic.Subscription, error) {
			return c.Subscribe(ctx, channel, h, opts...)
		}
	}
	s, err := subscribe(b.BroadcastChannel, ctx, channel, h, opts)
	if b.end != nil && err == nil {
		s = buggySubscription{s, b.end}
	}
	return s, err
}

// onGap wraps the gap handler.
func onGap(wrap func(next func(context.Context, semantic.Gap), ctx context.Context, g semantic.Gap)) func(*semantic.SubscribeOptions) {
	return func(o *semantic.SubscribeOptions) {
		if next := o.OnGap; next != nil {
			o.OnGap = func(ctx context.Context, g semantic.Gap) { wrap(next, ctx, g) }
		}
	}
}

// TestBroadcastChannelSuiteBites shows that each broken channel fails the case named for it.
func TestBroadcastChannelSuiteBites(t *testing.T) {
	type gapFunc = func(context.Context, semantic.Gap)
	for _, seeded := range []struct {
		bug  string
		fail string // the case that must catch it
		broadcastBug
	}{
		{"messages lost on resubscribe without a gap", "a lost link is told as a gap before the messages that follow it", broadcastBug{
			options: onGap(func(next gapFunc, ctx context.Context, g semantic.Gap) {
				if g.Reason != semantic.GapLinkLost {
					next(ctx, g)
				}
			})}},
		{"gap told twice", "a lost link is told as a gap before the messages that follow it", broadcastBug{
			options: onGap(func(next gapFunc, ctx context.Context, g semantic.Gap) {
				next(ctx, g)
				next(ctx, g)
			})}},
		{"gap without a duration", "a lost link is told as a gap before the messages that follow it", broadcastBug{
			options: onGap(func(next gapFunc, ctx context.Context, g semantic.Gap) {
				g.Duration = 0
				next(ctx, g)
			})}},
		{"self delivered though SkipSelf", "SkipSelf leaves out what this client published and nothing else", broadcastBug{
			options: func(o *semantic.SubscribeOptions) { o.SkipSelf = false }}},
		{"own messages never delivered", "a message reaches every subscription of every client, the sender's own included", broadcastBug{
			options: func(o *semantic.SubscribeOptions) { o.SkipSelf = true }}},
		{"every message claims to be one's own", "a message says its channel, its payload, its origin and whether it is one's own", broadcastBug{
			handler: func(_ *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler {
				return func(ctx context.Context, m semantic.Message) { m.Self = true; h(ctx, m) }
			}}},
		{"handler runs after Unsubscribe", "after Unsubscribe returned the handler never runs again", broadcastBug{
			end: func(semantic.Subscription) {}}},
		{"Unsubscribe does not wait", "Unsubscribe waits for a running handler", broadcastBug{
			end: func(s semantic.Subscription) { go s.Unsubscribe() }}},
		{"handler runs again after it unsubscribed itself", "Unsubscribe from inside the handler does not wait for itself and is its last call", broadcastBug{
			handler: func(_ *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler {
				return func(ctx context.Context, m semantic.Message) {
					defer func() { _ = recover() }() // the second call closes a channel twice
					h(ctx, m)
					h(ctx, m) // as if for a message that was waiting
				}
			}}},
		{"handler context does not end", "the handler's context ends with the subscription", broadcastBug{
			handler: func(_ *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler {
				return func(_ context.Context, m semantic.Message) { h(context.Background(), m) }
			}}},
		{"order broken", "messages of a channel arrive in order, once, and one at a time", broadcastBug{
			handler: func(_ *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler {
				var held *semantic.Message
				return func(ctx context.Context, m semantic.Message) { // swaps the second with the third
					if string(m.Payload) == `"1"` {
						held = &m
						return
					}
					h(ctx, m)
					if held != nil {
						h(ctx, *held)
						held = nil
					}
				}
			}}},
		{"a goroutine per message", "messages of a channel arrive in order, once, and one at a time", broadcastBug{
			handler: func(_ *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler {
				return func(ctx context.Context, m semantic.Message) { go h(ctx, m) }
			}}},
		{"messages delivered twice", "messages of a channel arrive in order, once, and one at a time", broadcastBug{
			handler: func(_ *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler {
				return func(ctx context.Context, m semantic.Message) { h(ctx, m); h(ctx, m) }
			}}},
		{"channels mixed up", "channels are apart", broadcastBug{
			publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
				if channel == "a:b" {
					_ = c.Publish(ctx, "a", payload)
				}
				return c.Publish(ctx, channel, payload)
			}}},
		{"a slow handler blocks the reader", "a handler that blocks delays no other subscription", broadcastBug{
			handler: sharedReader()}},
		{"overflow dropped in silence", "what a full queue drops is counted and told as a gap in its place", broadcastBug{
			options: onGap(func(next gapFunc, ctx context.Context, g semantic.Gap) {
				if g.Reason != semantic.GapOverflow {
					next(ctx, g)
				}
			})}},
		{"queue without a bound", "what a full queue drops is counted and told as a gap in its place", broadcastBug{
			options: func(o *semantic.SubscribeOptions) { o.Queue = 1 << 20 }}},
		{"overflow not counted", "what a full queue drops is counted and told as a gap in its place", broadcastBug{
			options: onGap(func(next gapFunc, ctx context.Context, g semantic.Gap) {
				g.Missed = min(g.Missed, 1)
				next(ctx, g)
			})}},
		{"a panic ends the subscription", "a panic costs a handler that message only, and nobody else anything", broadcastBug{
			handler: func(_ *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler {
				var dead atomic.Bool
				return func(ctx context.Context, m semantic.Message) {
					if dead.Load() {
						return
					}
					defer func() {
						if recover() != nil {
							dead.Store(true)
						}
					}()
					h(ctx, m)
				}
			}}},
		{"oversize accepted", "a payload above the limit is refused and reaches nobody", broadcastBug{
			publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
				err := c.Publish(ctx, channel, payload)
				if errors.Is(err, semantic.ErrTooLarge) {
					return c.Publish(ctx, channel, "cut")
				}
				return err
			}}},
		{"subscribed later than said", "every message published after Subscribe returned arrives", subscribedLate()},
		{"publish failures swallowed", "a publish while the backend is down is unavailable and never delivered", broadcastBug{
			publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
				_ = c.Publish(ctx, channel, payload)
				return nil
			}}},
		{"publish kept for later", "a publish while the backend is down is unavailable and never delivered", publishKept()},
		{"publish sent again when its reply is lost", "a publish whose reply is lost is unknown and delivered at most once", broadcastBug{
			publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
				err := c.Publish(ctx, channel, payload)
				if errors.Is(err, semantic.ErrUnknown) {
					_ = c.Publish(ctx, channel, payload)
				}
				return err
			}}},
		{"a lost reply taken for success", "a publish whose reply is lost is unknown and delivered at most once", broadcastBug{
			publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
				if err := c.Publish(ctx, channel, payload); !errors.Is(err, semantic.ErrUnknown) {
					return err
				}
				return nil
			}}},
		{"a failed Subscribe comes to life later", "a subscribe while the backend is down is unavailable and leaves nothing", subscribeKept()},
		{"cancel ignored", "calls on a silent link end with their context", broadcastBug{
			publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
				return errors.Join(c.Publish(context.WithoutCancel(ctx), channel, payload), ctx.Err())
			}}},
		{"an ended context is not looked at", "a context that has ended ends the call before it does anything", broadcastBug{
			publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
				return c.Publish(context.WithoutCancel(ctx), channel, payload)
			}}},
		{"arguments not checked", "arguments out of range are refused by name", broadcastBug{
			options: func(o *semantic.SubscribeOptions) { o.Queue = max(o.Queue, 1) }}},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
			t.Parallel()
			var found bool
			for _, c := range BroadcastChannelCases() {
				if c.Name != seeded.fail {
					continue
				}
				found = true
				if failures := Failures(c, buggyBroadcast(seeded.broadcastBug)); len(failures) == 0 {
					t.Errorf("the suite does not notice")
				} else {
					t.Logf("%.200s", failures[0])
				}
			}
			if !found {
				t.Errorf("there is no case %q", seeded.fail)
			}
		})
	}
}

// subscribedLate subscribes after the message that follows.
func subscribedLate() broadcastBug {
	var owed func()
	return broadcastBug{
		subscribe: func(c *BroadcastChannel, ctx context.Context, channel string, h semantic.MessageHandler, opts []semantic.SubscribeOption) (semantic.Subscription, error) {
			owed = func() { _, _ = c.Subscribe(ctx, channel, h, opts...) }
			return buggySubscription{end: func(semantic.Subscription) {}}, nil
		},
		publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
			defer owed()
			return c.Publish(ctx, channel, payload)
		},
	}
}

// publishKept sends what could not be sent before what is sent next.
func publishKept() broadcastBug {
	var kept []any
	return broadcastBug{publish: func(c *BroadcastChannel, ctx context.Context, channel string, payload any) error {
		for len(kept) > 0 && c.Publish(ctx, channel, kept[0]) == nil {
			kept = kept[1:]
		}
		err := c.Publish(ctx, channel, payload)
		if errors.Is(err, semantic.ErrUnavailable) {
			kept = append(kept, payload)
		}
		return err
	}}
}

// subscribeKept makes good a Subscribe that failed before the one that comes next.
func subscribeKept() broadcastBug {
	var kept func() error
	return broadcastBug{subscribe: func(c *BroadcastChannel, ctx context.Context, channel string, h semantic.MessageHandler, opts []semantic.SubscribeOption) (semantic.Subscription, error) {
		if kept != nil && kept() == nil {
			kept = nil
		}
		s, err := c.Subscribe(ctx, channel, h, opts...)
		if err != nil {
			kept = func() error { _, err := c.Subscribe(ctx, channel, h, opts...); return err }
		}
		return s, err
	}}
}

// sharedReader makes all handlers run one after the other, as on one reader.
func sharedReader() func(*BroadcastChannel, semantic.MessageHandler) semantic.MessageHandler {
	var reader sync.Mutex
	return func(_ *BroadcastChannel, h semantic.MessageHandler) semantic.MessageHandler {
		return func(ctx context.Context, m semantic.Message) {
			reader.Lock()
			defer reader.Unlock()
			h(ctx, m)
		}
	}
}

func buggyBroadcast(bug broadcastBug) Backend[semantic.BroadcastChannel] {
	clock := NewClock()
	var backend *BroadcastBackend
	return Backend[semantic.BroadcastChannel]{
		New: func(t T, n int) []semantic.BroadcastChannel {
			backend = NewBroadcastBackend(clock)
			var cs []semantic.BroadcastChannel
			for i := range n {
				one := bug
				one.BroadcastChannel = backend.Client(fmt.Sprint("replica-", i))
				t.Cleanup(one.Close)
				cs = append(cs, &one)
			}
			return cs
		},
		Advance: clock.Advance,
		Fault:   func(_ T, f Fault) (heal func()) { return backend.Inject(f) },
	}
}
