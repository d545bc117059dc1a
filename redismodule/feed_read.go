package redismodule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// read takes frames until the connection fails or is closed.
func (h *hub) read(link *feed) error {
	for {
		frame, err := receive(h.spent, link.pubsub)
		var refusal redis.Error
		if err != nil && !errors.As(err, &refusal) {
			return err
		}
		if err := h.handle(link, frame, refusal); err != nil {
			return err
		}
	}
}

// receive waits for one frame. A frame that the library cannot make sense of panics
// there; it ends the link, not the process.
func receive(ctx context.Context, pubsub *redis.PubSub) (frame any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("frame that is not pub/sub: %v", p)
		}
	}()
	return pubsub.Receive(ctx)
}

// handle takes one frame, or a refusal, of link. An error ends the link.
func (h *hub) handle(link *feed, frame any, refusal redis.Error) error {
	h.mu.Lock()
	if h.link != link {
		h.mu.Unlock()
		return nil // given up already
	}
	h.lastProof = time.Now()
	if m, ok := frame.(*redis.Message); ok {
		sinks := h.sinksOf(m)
		link.echo.hear(m)
		h.mu.Unlock()
		for _, r := range sinks {
			if !r.gone.Load() {
				r.deliver(m.Channel, m.Payload)
			}
		}
		return nil
	}
	gaps, err := h.answer(link, frame, refusal)
	told := h.settle()
	h.mu.Unlock()
	for _, gap := range gaps {
		gap()
	}
	told()
	return err
}

// sinksOf returns everyone who receives m, all of them live.
func (h *hub) sinksOf(m *redis.Message) []*registration {
	t := topic{name: m.Channel}
	if m.Pattern != "" {
		t = topic{name: m.Pattern, pattern: true}
	}
	if e := h.topics[t]; e != nil && e.confirmed {
		return e.sinks
	}
	return nil
}

// answer matches a frame with the oldest question. It returns the gaps to be told.
func (h *hub) answer(link *feed, frame any, refusal redis.Error) ([]func(), error) {
	if len(link.asked) == 0 {
		return nil, fmt.Errorf("frame that was not asked for: %v%v", frame, refusal) //nolint:errorlint // one of the two is nil
	}
	q := &link.asked[0]
	pop := func() { link.asked = link.asked[1:] }
	if refusal != nil {
		pop()
		h.refuse(*q, refusal)
		return nil, nil
	}
	s, isSubscription := frame.(*redis.Subscription)
	switch {
	case !isSubscription && len(q.entries) == 0: // a PONG
		pop()
		return nil, nil
	case !isSubscription || len(q.entries) == 0 || s.Channel != q.entries[0].name:
		return nil, fmt.Errorf("frame out of order: %v", frame)
	}
	e := q.entries[0]
	if q.entries = q.entries[1:]; len(q.entries) == 0 {
		defer pop()
	}
	if q.leave {
		return nil, nil
	}
	return h.confirm(e), nil
}

// confirm marks e as confirmed, ends the waits for it and returns the gaps of those
// who had it before.
func (h *hub) confirm(e *entry) (gaps []func()) {
	d := time.Duration(0)
	if !e.lost.IsZero() {
		d = time.Since(e.lost)
		e.lost = time.Time{}
		h.owed--
	}
	e.confirmed, e.refused = true, false
	for _, r := range e.sinks {
		if !r.live {
			r.live = true
			r.ready <- nil
			continue
		}
		gaps = append(gaps, func() {
			if !r.gone.Load() {
				r.gap(d)
			}
		})
	}
	return gaps
}

// refuse takes the server's error as the answer to q.
func (h *hub) refuse(q question, err error) {
	if q.leave || len(q.entries) == 0 {
		return // a sign of life all the same
	}
	if len(q.entries) > 1 { // one of them; the others are to have theirs
		for _, e := range q.entries {
			h.outbox = append(h.outbox, command{of: e, alone: true})
		}
		h.nudge()
		return
	}
	e := q.entries[0]
	e.refused = true
	for _, r := range e.sinks {
		if !r.live {
			h.fail(r, err)
		}
	}
}
