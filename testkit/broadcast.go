package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// maxBroadcast is the double's largest payload: the default of the real one.
const maxBroadcast = 256 << 10

// BroadcastBackend is what the clients of a [BroadcastChannel] double share. While
// [FaultDown] or [FaultHang] is injected, every client's link is lost: nothing is
// delivered, and each subscription is told a gap at heal. Safe for concurrent use.
type BroadcastBackend struct {
	injector
	clock semantic.Clock

	mu     sync.Mutex
	subs   []*broadcastSubscription // in the order of their making
	panics []error
}

// NewBroadcastBackend returns an empty backend; a nil clock is the system's. The clock
// measures gaps.
func NewBroadcastBackend(clock semantic.Clock) *BroadcastBackend {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &BroadcastBackend{clock: clock}
}

// Client returns the channel as the replica named name has it.
func (b *BroadcastBackend) Client(name string) *BroadcastChannel {
	return &BroadcastChannel{backend: b, name: name}
}

// Inject is that of every double; see [BroadcastBackend] for what becomes of
// subscriptions.
func (b *BroadcastBackend) Inject(f Fault) (heal func()) {
	end := b.injector.Inject(f)
	b.relink()
	return func() {
		end()
		b.relink()
	}
}

// Subscribers returns how many subscriptions channel has, over all clients.
func (b *BroadcastBackend) Subscribers(channel string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.subs {
		if s.channel == channel {
			n++
		}
	}
	return n
}

// Panics returns what handlers have panicked with, so that a test can insist on none.
func (b *BroadcastBackend) Panics() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.panics)
}

// relink begins and ends the gaps of the subscriptions after a fault or a heal.
func (b *BroadcastBackend) relink() {
	down := b.has(FaultDown) || b.has(FaultHang)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	for _, s := range b.subs {
		switch lost := down || s.client.cut; {
		case lost && !s.lost:
			s.lost, s.since = true, now
		case !lost && s.lost:
			s.lost = false
			s.delivery.PushGap(now.Sub(s.since))
		}
	}
}

// BroadcastChannel is an in-memory [semantic.BroadcastChannel].
type BroadcastChannel struct {
	backend *BroadcastBackend
	name    string

	closed bool // guarded by backend.mu, as is cut
	cut    bool
}

var _ semantic.BroadcastChannel = (*BroadcastChannel)(nil)

// NewBroadcastChannel returns the only client of a backend of its own; a nil clock is
// the system's.
func NewBroadcastChannel(clock semantic.Clock) *BroadcastChannel {
	return NewBroadcastBackend(clock).Client("test")
}

// Backend returns what the client is connected to.
func (c *BroadcastChannel) Backend() *BroadcastBackend { return c.backend }

// Cut takes this client's link away until mend is called: what others publish
// meanwhile is lost to it, and told as a gap then; its own calls are unavailable.
func (c *BroadcastChannel) Cut() (mend func()) {
	set := func(cut bool) {
		c.backend.mu.Lock()
		c.cut = cut
		c.backend.mu.Unlock()
		c.backend.relink()
	}
	set(true)
	return func() { set(false) }
}

// Close ends every subscription, waits for running handlers and makes every later
// call return [semantic.ErrClosed]. It must not be called from inside a handler.
func (c *BroadcastChannel) Close() {
	c.backend.mu.Lock()
	c.closed = true
	var own []*broadcastSubscription
	for _, s := range c.backend.subs {
		if s.client == c {
			own = append(own, s)
		}
	}
	c.backend.mu.Unlock()
	for _, s := range own {
		s.Unsubscribe()
	}
}

// Publish implements [semantic.BroadcastChannel].
func (c *BroadcastChannel) Publish(ctx context.Context, channel string, payload any) error {
	const op = "broadcast.publish"
	body, err := semantic.EncodePayload(op, channel, payload, maxBroadcast)
	if err != nil {
		return err
	}
	if err := c.before(ctx, op, channel); err != nil {
		return err
	}
	b := c.backend
	b.mu.Lock()
	for _, s := range b.subs {
		if s.channel == channel && !s.lost {
			s.delivery.Push(semantic.Message{
				Channel: channel, Payload: slices.Clone(body), Origin: c.name, Self: s.client == c,
			})
		}
	}
	b.mu.Unlock()
	if lost, _ := b.replyLost(); lost {
		return unknown(op, channel)
	}
	return nil
}

// Subscribe implements [semantic.BroadcastChannel].
func (c *BroadcastChannel) Subscribe(ctx context.Context, channel string, handler semantic.MessageHandler, opts ...semantic.SubscribeOption) (semantic.Subscription, error) {
	const op = "broadcast.subscribe"
	options, err := semantic.ResolveSubscribeOptions(op, channel, handler, opts...)
	if err != nil {
		return nil, err
	}
	if err := c.before(ctx, op, channel); err != nil {
		if o := (*semantic.OutcomeError)(nil); errors.As(err, &o) {
			o.Outcome = semantic.OutcomeUnavailable // nothing stays registered
		}
		return nil, err
	}
	b := c.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("%s %q: %w", op, channel, semantic.ErrClosed)
	}
	s := &broadcastSubscription{client: c, channel: channel}
	s.delivery = semantic.StartDelivery(channel, handler, options, semantic.DeliveryHooks{
		Panicked: func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.panics = append(b.panics, err)
		},
	})
	b.subs = append(b.subs, s)
	return s, nil
}

// before is what a call meets on its way.
func (c *BroadcastChannel) before(ctx context.Context, op, channel string) error {
	c.backend.mu.Lock()
	closed, cut := c.closed, c.cut
	c.backend.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("%s %q: %w", op, channel, semantic.ErrClosed)
	case cut:
		return &semantic.OutcomeError{Operation: op, Key: channel, Outcome: semantic.OutcomeUnavailable, Cause: errInjectedDown}
	}
	return c.backend.injector.before(ctx, op, channel)
}

// broadcastSubscription is one handler of the double.
type broadcastSubscription struct {
	client   *BroadcastChannel
	channel  string
	delivery *semantic.Delivery

	lost  bool // the link is; guarded by backend.mu
	since time.Time
}

// Unsubscribe implements [semantic.Subscription].
func (s *broadcastSubscription) Unsubscribe() {
	b := s.client.backend
	b.mu.Lock()
	if i := slices.Index(b.subs, s); i >= 0 {
		b.subs = slices.Delete(b.subs, i, i+1)
	}
	b.mu.Unlock()
	s.delivery.Close()
	s.delivery.Wait()
}
