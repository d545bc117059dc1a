package redismodule

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
)

// hub owns the one subscriber connection of a role and shares it among all channels.
// It is inert until the first subscription, and has neither a connection nor a
// goroutine once the last one has left.
//
// It tells its subscribers the truth about the link: a subscription exists when the
// server has confirmed it, a silent link is lost within two ping intervals, and a gap
// ends when the server has confirmed the channel again.
type hub struct {
	open   func(context.Context) (*redis.PubSub, error)
	ping   time.Duration
	events hubEvents
	echoes *echoes         // set before the first use; nil: not listened for
	health *health.Part    // nil: nobody watches
	ctx    context.Context // ends at close
	cancel context.CancelFunc
	spent  context.Context // see feed
	wake   chan struct{}   // something to write, or nothing left to do

	mu        sync.Mutex // guards all below
	closed    bool
	done      chan struct{} // closed when the run goroutine has ended; nil while none runs
	topics    map[topic]*entry
	link      *feed     // being dialed or up; nil while there is none
	outbox    []command // to be written on link, in this order
	lastProof time.Time // the latest frame from the server, on any link
	outage    time.Time // last proof of life before the present outage; zero without one
	owed      int       // entries that an outage took and no server has confirmed since
}

// hubEvents are told of an outage, once at its begin and once at its end. Both may be
// nil; they must not block.
type hubEvents struct {
	// dropped: the link under so many confirmed channels was lost.
	dropped func(channels int, err error)
	// resubscribed: the server has confirmed every one of them again, gap after the
	// last proof of life of the lost link.
	resubscribed func(channels int, gap time.Duration)
}

// sink receives from one channel, on the hub's reader goroutine: its methods must
// neither block nor call the hub. After cancel none is called, but for a call that is
// already under way.
type sink interface {
	onMessage(payload string)
	// onGap: messages of the last d may have been missed; those that follow are new.
	onGap(d time.Duration)
}

// patternSink is a [sink] of a pattern: it is told each message's channel.
type patternSink interface {
	onPatternMessage(channel, payload string)
	onGap(d time.Duration)
}

// topic is what a SUBSCRIBE or PSUBSCRIBE names.
type topic struct {
	name    string
	pattern bool
}

// entry is one topic with everyone who receives from it.
type entry struct {
	topic
	sinks []*registration // replaced, never changed: the reader walks it unlocked;
	// all are live while the entry is confirmed
	confirmed bool      // by the server, on the present link
	lost      time.Time // last proof of life before its link was lost; zero if not lost
	refused   bool      // by the server, after it had once been confirmed
}

// registration is one sink of an entry.
type registration struct {
	of      *entry
	deliver func(channel, payload string)
	gap     func(time.Duration)
	live    bool       // was confirmed; guarded by hub.mu
	losses  int        // links lost while waiting; guarded by hub.mu
	ready   chan error // the outcome of the wait; has room for it
	gone    atomic.Bool
}

// hubState is a view of the hub for health reports.
type hubState struct {
	Connected bool      // every channel is confirmed on a live link, or there is none to confirm
	Channels  int       // channels and patterns with a subscriber
	LastProof time.Time // when the server was last heard; zero before the first time
}

// newHub returns an inert hub. open makes a connection's PubSub without dialing.
func newHub(open func(context.Context) (*redis.PubSub, error), pingInterval time.Duration, events hubEvents) *hub {
	if events.dropped == nil {
		events.dropped = func(int, error) {}
	}
	if events.resubscribed == nil {
		events.resubscribed = func(int, time.Duration) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	spent, end := context.WithCancel(context.Background())
	end()
	return &hub{
		open: open, ping: pingInterval, events: events, ctx: ctx, cancel: cancel, spent: spent,
		wake: make(chan struct{}, 1), topics: map[topic]*entry{},
	}
}

// subscribe registers s and returns once the server has confirmed the channel, at
// once if it already has. Ending ctx ends the wait. The error is the server's refusal
// (a NOPERM for example), what became of the connection, ctx's error, or
// [semantic.ErrClosed]; nothing stays registered then. cancel leaves the channel; it
// may be called more than once.
func (h *hub) subscribe(ctx context.Context, channel string, s sink) (cancel func(), err error) {
	deliver := func(_, payload string) { s.onMessage(payload) }
	return h.register(ctx, topic{name: channel}, deliver, s.onGap)
}

// subscribePattern is [hub.subscribe] for a glob-style pattern of channels.
func (h *hub) subscribePattern(ctx context.Context, pattern string, s patternSink) (cancel func(), err error) {
	return h.register(ctx, topic{name: pattern, pattern: true}, s.onPatternMessage, s.onGap)
}

func (h *hub) register(ctx context.Context, t topic, deliver func(channel, payload string), gap func(time.Duration)) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &registration{deliver: deliver, gap: gap, ready: make(chan error, 1)}
	if err := h.add(t, r); err != nil {
		return nil, err
	}
	select {
	case err := <-r.ready:
		if err != nil {
			return nil, err
		}
		return func() { h.remove(r) }, nil
	case <-ctx.Done():
		h.remove(r)
		return nil, ctx.Err()
	}
}

// add registers r and makes sure that someone asks the server for its topic.
func (h *hub) add(t topic, r *registration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return semantic.ErrClosed
	}
	e := h.topics[t]
	if e == nil {
		e = &entry{topic: t}
		h.topics[t] = e
		if h.link != nil {
			h.outbox = append(h.outbox, command{of: e})
			h.nudge()
		}
	}
	r.of = e
	e.sinks = append(append(make([]*registration, 0, len(e.sinks)+1), e.sinks...), r)
	if e.confirmed {
		r.live = true
		r.ready <- nil
	}
	if h.done == nil {
		h.done = make(chan struct{})
		go h.run(h.done)
	}
	return nil
}

// remove takes r out, and its topic with it if it was the last.
func (h *hub) remove(r *registration) {
	r.gone.Store(true)
	h.mu.Lock()
	h.leave(r)
	told := h.settle()
	h.mu.Unlock()
	told()
}

// leave is remove under the lock.
func (h *hub) leave(r *registration) {
	e := r.of
	kept := make([]*registration, 0, len(e.sinks))
	for _, other := range e.sinks {
		if other != r {
			kept = append(kept, other)
		}
	}
	if len(kept) == len(e.sinks) {
		return
	}
	e.sinks = kept
	if len(kept) > 0 {
		return
	}
	delete(h.topics, e.topic)
	if !e.lost.IsZero() {
		e.lost = time.Time{}
		h.owed--
	}
	if h.link != nil {
		h.outbox = append(h.outbox, command{of: e, leave: true})
	}
	h.nudge()
}

// fail ends the wait of r without success.
func (h *hub) fail(r *registration, err error) {
	r.gone.Store(true)
	r.ready <- err
	h.leave(r)
}

// settle ends the outage once nothing is owed any more, and returns what there is to
// tell, to be called without the lock.
func (h *hub) settle() func() {
	if h.outage.IsZero() || h.owed > 0 {
		return func() {}
	}
	confirmed := 0
	for _, e := range h.topics {
		if e.confirmed {
			confirmed++
		}
	}
	if confirmed == 0 && len(h.topics) > 0 {
		return func() {} // those it took have left; the link is still down
	}
	gap := time.Since(h.outage)
	h.outage = time.Time{}
	if confirmed == 0 {
		return func() {} // nobody is left to whom it matters
	}
	return func() { h.events.resubscribed(confirmed, gap) }
}

// nudge wakes the run goroutine.
func (h *hub) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// state is a snapshot for health reports. It never blocks on the network.
func (h *hub) state() hubState {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := hubState{Connected: true, Channels: len(h.topics), LastProof: h.lastProof}
	for _, e := range h.topics {
		s.Connected = s.Connected && e.confirmed
	}
	return s
}

// close ends every subscription and the connection, and waits for the goroutines
// until ctx ends. Waiting subscribers get [semantic.ErrClosed]; sinks are not called
// any more once it has returned nil. Closing twice is fine.
func (h *hub) close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for _, e := range h.topics {
		for _, r := range e.sinks {
			r.gone.Store(true)
			if !r.live {
				r.ready <- semantic.ErrClosed
			}
		}
		e.sinks = nil
	}
	clear(h.topics)
	h.owed, h.outage = 0, time.Time{}
	done := h.done
	h.mu.Unlock()
	h.cancel()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the subscriber connection: %w", ctx.Err())
	}
}
