package redismodule

import (
	"context"
	"fmt"
	"sync"

	"github.com/wrkbelt/coord/semantic"
)

// subscriptions are all those of one service, so that it can end them at close.
type subscriptions struct {
	mu     sync.Mutex
	closed bool
	all    map[*subscription]bool
}

// subscription is one handler with its queue. It implements [semantic.Subscription].
type subscription struct {
	channel  string
	delivery *semantic.Delivery
	of       *subscriptions

	mu    sync.Mutex
	ended bool
	leave func() // leaves the hub; nil until joined
}

// open starts the delivery of a new subscription; it returns [semantic.ErrClosed]
// after close.
func (l *subscriptions) open(channel string, handler semantic.MessageHandler, o semantic.SubscribeOptions, hooks semantic.DeliveryHooks) (*subscription, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, semantic.ErrClosed
	}
	if l.all == nil {
		l.all = map[*subscription]bool{}
	}
	s := &subscription{channel: channel, of: l, delivery: semantic.StartDelivery(channel, handler, o, hooks)}
	l.all[s] = true
	return s, nil
}

func (l *subscriptions) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close ends every subscription, cancels the running handlers' contexts and waits for
// them until ctx ends.
func (l *subscriptions) close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	var all []*subscription
	for s := range l.all {
		all = append(all, s)
	}
	l.mu.Unlock()
	for _, s := range all {
		s.end()
	}
	for _, s := range all {
		select {
		case <-s.delivery.Done():
			continue
		default:
		}
		select {
		case <-s.delivery.Done():
		case <-ctx.Done():
			return fmt.Errorf("closing subscriptions: a handler of channel %q is still running: %w", s.channel, ctx.Err())
		}
	}
	return nil
}

// join makes the subscription exist with the outcome of asking the hub for it. After
// an error it is gone.
func (s *subscription) join(leave func(), err error) error {
	if err != nil {
		s.Unsubscribe()
		return err
	}
	s.mu.Lock()
	ended := s.ended
	s.leave = leave
	s.mu.Unlock()
	if ended { // the service was closed meanwhile
		leave()
		return semantic.ErrClosed
	}
	return nil
}

// Unsubscribe implements [semantic.Subscription].
func (s *subscription) Unsubscribe() {
	s.end()
	s.delivery.Wait()
}

// end makes sure that no further message reaches the handler.
func (s *subscription) end() {
	s.mu.Lock()
	leave := s.leave
	s.ended, s.leave = true, nil
	s.mu.Unlock()
	if leave != nil {
		leave()
	}
	s.delivery.Close()
	s.of.mu.Lock()
	delete(s.of.all, s)
	s.of.mu.Unlock()
}
