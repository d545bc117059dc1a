package redismodule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
)

// errDeaf ends a link that answers but does not deliver.
var errDeaf = errors.New("the server answers, but a message published elsewhere did not arrive")

// echoes is how a hub finds out that its link answers PING but gets no messages: it
// sits on a former primary, say, while the publishers went to the new one. Once per
// ping interval it has a message published the way the application's are, on a
// channel of its own, and expects to hear it within another interval.
type echoes struct {
	channel string
	publish func(ctx context.Context, channel, payload string) error
}

// newEchoes publishes through do, the way a service does.
func newEchoes(c Config, do func(ctx context.Context, op conn.Op, args ...any) (any, error)) *echoes {
	return &echoes{
		channel: keyspace{c.Namespace}.key(kindProbe, newToken(), ""),
		publish: func(ctx context.Context, channel, payload string) error {
			_, err := do(ctx, conn.Op{Name: "redis.probe", Key: channel}, "PUBLISH", channel, payload)
			return err
		},
	}
}

// echo is the state of that on one link, guarded by hub.mu.
type echo struct {
	echoes
	entry  *entry // of its channel; not among the hub's topics
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // the publish in flight

	token     string    // expected to be heard; "" while nothing is
	published time.Time // when the server took it; zero before that
	next      time.Time // when to ask again
}

func newEcho(ctx context.Context, how echoes) *echo {
	e := &echo{echoes: how, entry: &entry{topic: topic{name: how.channel}}}
	e.ctx, e.cancel = context.WithCancel(ctx)
	return e
}

// listenForEcho sends the next message when it is due, and returns errDeaf when the
// last one should have been heard. late excuses the past: this process stood still.
func (h *hub) listenForEcho(link *feed, now time.Time, late bool) error {
	e := link.echo
	if e == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !e.entry.confirmed { // not yet, or its channel is forbidden
		return nil
	}
	if late && !e.published.IsZero() {
		e.published = now
	}
	if !e.published.IsZero() && now.Sub(e.published) >= h.ping-h.ping/8 {
		return fmt.Errorf("%w for %v", errDeaf, now.Sub(e.published).Round(time.Millisecond))
	}
	if e.token != "" || now.Before(e.next) {
		return nil
	}
	token := newToken()
	e.token, e.next = token, now.Add(h.ping-h.ping/8)
	e.work.Go(func() {
		ctx, cancel := context.WithTimeout(e.ctx, h.ping)
		defer cancel()
		err := e.publish(ctx, e.channel, token)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case e.token != token: // heard already
		case err != nil: // says nothing of this link
			e.token = ""
		default:
			e.published = time.Now()
		}
	})
	return nil
}

// hear takes a message that may be the expected one.
func (e *echo) hear(m *redis.Message) {
	if e != nil && m.Channel == e.channel && m.Payload == e.token {
		e.token, e.published = "", time.Time{}
	}
}

// stop ends a publish in flight.
func (e *echo) stop() {
	if e != nil {
		e.cancel()
		e.work.Wait()
	}
}
