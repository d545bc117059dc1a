package semantic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// Delivery is one subscription's bounded queue and the goroutine that hands it to the
// handler, written once so that every implementation of [BroadcastChannel] behaves
// alike: order, overflow, isolation of panics and the barrier of Unsubscribe.
//
// Push and PushGap never block. Close and Wait end it. Safe for concurrent use.
type Delivery struct {
	channel string
	handler MessageHandler
	options SubscribeOptions
	hooks   DeliveryHooks
	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{} // of capacity 1
	done    chan struct{} // closed when the worker has ended

	mu       sync.Mutex
	queue    []queued
	messages int // in queue
	closed   bool
	worker   string // the worker's goroutine; "" between two of them
}

// queued is a message, or a gap at its place among the messages.
type queued struct {
	message Message
	gap     *Gap
}

// DeliveryHooks tell what the contract wants counted. Each may be nil.
type DeliveryHooks struct {
	// Overflow: missed more messages were dropped. It is called for the first one of
	// a gap at once, from Push, and for the others when the gap has its turn.
	Overflow func(missed int)
	// Panicked: the handler or the gap handler panicked, or ended its goroutine.
	Panicked func(err error)
}

// StartDelivery starts the worker of a subscription whose options are resolved.
func StartDelivery(channel string, handler MessageHandler, o SubscribeOptions, hooks DeliveryHooks) *Delivery {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Delivery{
		channel: channel, handler: handler, options: o, hooks: hooks,
		ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go d.work()
	return d
}

// Push queues m, unless the subscription leaves out its own. What finds the queue full
// is dropped and becomes part of a gap at that place.
func (d *Delivery) Push(m Message) {
	if m.Self && d.options.SkipSelf {
		return
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	full := d.messages >= d.options.Queue
	first := false
	if full {
		first = d.addGap(Gap{Channel: d.channel, Reason: GapOverflow, Missed: 1})
	} else {
		d.queue = append(d.queue, queued{message: m})
		d.messages++
	}
	d.mu.Unlock()
	if first && d.hooks.Overflow != nil {
		d.hooks.Overflow(1)
	}
	d.nudge()
}

// PushGap queues the gap of a link that was lost for span.
func (d *Delivery) PushGap(span time.Duration) {
	d.mu.Lock()
	if !d.closed {
		d.addGap(Gap{Channel: d.channel, Reason: GapLinkLost, Duration: span})
	}
	d.mu.Unlock()
	d.nudge()
}

// addGap adds g to a gap of the same kind with no message in between, or queues it
// and returns true. So there are never more gaps than twice the messages and two.
func (d *Delivery) addGap(g Gap) bool {
	for i := len(d.queue) - 1; i >= 0 && d.queue[i].gap != nil; i-- {
		if earlier := d.queue[i].gap; earlier.Reason == g.Reason {
			earlier.Missed += g.Missed
			earlier.Duration += g.Duration
			return false
		}
	}
	d.queue = append(d.queue, queued{gap: &g})
	return true
}

// Close ends the handler's context and drops what is queued. It does not wait: with
// [Delivery.Wait] after it, no handler call begins any more. Closing twice is fine.
func (d *Delivery) Close() {
	d.mu.Lock()
	untold := 0
	for _, item := range d.queue {
		if item.gap != nil && item.gap.Missed > 1 {
			untold += item.gap.Missed - 1
		}
	}
	d.closed, d.queue, d.messages = true, nil, 0
	d.mu.Unlock()
	d.cancel()
	if untold > 0 && d.hooks.Overflow != nil {
		d.hooks.Overflow(untold)
	}
}

// Done is closed when the worker has ended, after Close.
func (d *Delivery) Done() <-chan struct{} { return d.done }

// Wait waits for the worker to end, after Close. From inside the handler it returns
// at once.
func (d *Delivery) Wait() {
	d.mu.Lock()
	worker := d.worker
	d.mu.Unlock()
	if worker != "" && worker == goroutine() {
		return
	}
	<-d.done
}

func (d *Delivery) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// work hands over what is queued until Close. A handler that ends the goroutine
// (runtime.Goexit, as a failing test does) costs a new one, not the subscription.
func (d *Delivery) work() {
	d.mu.Lock()
	d.worker = goroutine()
	d.mu.Unlock()
	ended := false
	defer func() {
		if ended {
			close(d.done)
			return
		}
		d.mu.Lock()
		d.worker = ""
		d.mu.Unlock()
		go d.work()
	}()
	for {
		item, ok := d.next()
		switch {
		case !ok && d.isClosed():
			ended = true
			return
		case !ok:
			select {
			case <-d.wake:
			case <-d.ctx.Done():
			}
		case item.gap != nil:
			d.tellGap(*item.gap)
		default:
			d.guard(func() { d.handler(d.ctx, item.message) })
		}
	}
}

// next takes the oldest item.
func (d *Delivery) next() (queued, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 {
		return queued{}, false
	}
	item := d.queue[0]
	d.queue[0] = queued{}
	if item.gap == nil {
		d.messages--
	}
	if d.queue = d.queue[1:]; len(d.queue) == 0 {
		d.queue = nil
	}
	return item, true
}

func (d *Delivery) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

func (d *Delivery) tellGap(g Gap) {
	if g.Missed > 1 && d.hooks.Overflow != nil {
		d.hooks.Overflow(g.Missed - 1)
	}
	if d.options.OnGap != nil {
		d.guard(func() { d.options.OnGap(d.ctx, g) })
	}
}

// guard runs call and keeps its panic to itself.
func (d *Delivery) guard(call func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		err := errors.New("handler ended its goroutine")
		if p := recover(); p != nil {
			err = fmt.Errorf("handler panicked: %v\n%s", p, debug.Stack())
		}
		if d.hooks.Panicked != nil {
			d.hooks.Panicked(err)
		}
	}()
	call()
	returned = true
}

// goroutine names the calling goroutine. The contract lets Unsubscribe be called from
// inside the handler, and it has no context that could say so.
func goroutine() string {
	var buf [64]byte
	head := buf[:runtime.Stack(buf[:], false)]
	if id, _, ok := bytes.Cut(bytes.TrimPrefix(head, []byte("goroutine ")), []byte(" ")); ok {
		return string(id)
	}
	return ""
}
