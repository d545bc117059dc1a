package redismodule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// batchSize bounds the channels of one SUBSCRIBE.
	batchSize = 1000
	// The wait before a redial doubles from redialLeast to redialMost, less up to half
	// of it by chance, so that replicas do not come back in step.
	redialLeast = 10 * time.Millisecond
	redialMost  = time.Second
)

// errSilent ends a link that does not answer.
var errSilent = errors.New("no sign of life from the server")

// command asks for a topic, or leaves it.
type command struct {
	of    *entry
	leave bool
	alone bool // not in one batch with others: one of a refused batch
}

// feed is one connection, and one PubSub is one connection here. Left alone, the
// library redials inside the very call that meets a broken connection, unseen. So
// every call but the dialing one is given a context that has ended: reads and writes
// look at a context's deadline only, but a dial refuses it, and the first error of a
// PubSub is its last word.
type feed struct {
	pubsub *redis.PubSub
	up     bool       // dialed; guarded by hub.mu
	asked  []question // in the order of the answers; guarded by hub.mu
	echo   *echo      // nil without one
}

// question is what was written and is not yet answered in full.
type question struct {
	entries []*entry // none for a PING
	leave   bool
	pattern bool
}

// run keeps a link up for as long as there is a topic.
func (h *hub) run(done chan struct{}) {
	defer close(done)
	wait := time.Duration(0)
	for {
		worked := h.connectAndServe()
		if h.idle() {
			return
		}
		if worked {
			wait = 0 // back at once
		}
		if wait > 0 {
			h.pause(wait/2 + rand.N(wait/2))
		}
		if h.idle() {
			return
		}
		wait = min(max(2*wait, redialLeast), redialMost)
	}
}

// idle tells, and settles, that the run goroutine has nothing left to do.
func (h *hub) idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.topics) > 0 && !h.closed {
		return false
	}
	h.done, h.outbox, h.outage = nil, nil, time.Time{}
	return true
}

// pause waits for d, or until nobody needs a link any more.
func (h *hub) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-h.ctx.Done():
			return
		case <-h.wake:
			h.mu.Lock()
			unneeded := len(h.topics) == 0
			h.mu.Unlock()
			if unneeded {
				return
			}
		}
	}
}

// connectAndServe makes a link and keeps it until it is lost or unneeded. It tells
// whether the link had worked for a while.
func (h *hub) connectAndServe() (worked bool) {
	pubsub, err := h.open(h.ctx)
	if err != nil {
		h.lose(err)
		return false
	}
	link := &feed{pubsub: pubsub}
	// The first write dials.
	if err := h.write(h.ctx, link, h.adopt(link)); err != nil {
		h.lose(err)
		_ = pubsub.Close()
		link.echo.stop()
		return false
	}
	h.mu.Lock()
	link.up = true
	h.mu.Unlock()
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- h.read(link) }()
	err, reading := h.tend(link, ended)
	worked = time.Since(began) > h.ping
	h.lose(err)        // told first: closing a dead connection may take a moment
	_ = pubsub.Close() // the only thing that ends a blocked Receive
	if reading {
		<-ended //nolint:errcheck // what ended it is known
	}
	link.echo.stop()
	return worked
}

// adopt makes link the present one and returns the questions that ask for every topic.
func (h *hub) adopt(link *feed) []question {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]command, 0, len(h.topics))
	for _, pattern := range []bool{false, true} {
		for t, e := range h.topics {
			if t.pattern == pattern {
				all = append(all, command{of: e})
			}
		}
	}
	if h.echoes != nil {
		link.echo = newEcho(h.ctx, *h.echoes)
		all = append(all, command{of: link.echo.entry})
	}
	h.link, h.outbox = link, nil
	return link.ask(all)
}

// ask turns commands into questions and expects their answers.
func (f *feed) ask(commands []command) []question {
	var questions []question
	alone := false
	for _, c := range commands {
		last := len(questions) - 1
		if last < 0 || alone || c.alone || len(questions[last].entries) == batchSize ||
			questions[last].leave != c.leave || questions[last].pattern != c.of.pattern {
			questions = append(questions, question{leave: c.leave, pattern: c.of.pattern})
			last++
		}
		questions[last].entries = append(questions[last].entries, c.of)
		alone = c.alone
	}
	f.asked = append(f.asked, questions...)
	return questions
}

// write sends questions, the first of them with ctx.
func (h *hub) write(ctx context.Context, link *feed, questions []question) error {
	for _, q := range questions {
		names := make([]string, len(q.entries))
		for i, e := range q.entries {
			names[i] = e.name
		}
		send := link.pubsub.Subscribe
		switch {
		case q.pattern && q.leave:
			send = link.pubsub.PUnsubscribe
		case q.pattern:
			send = link.pubsub.PSubscribe
		case q.leave:
			send = link.pubsub.Unsubscribe
		}
		if err := send(ctx, names...); err != nil {
			return err
		}
		ctx = h.writing()
	}
	return nil
}

// writing is the context of one write on a link that is up: it cannot dial, and a
// dead link's full send buffer does not hold up finding it dead.
func (h *hub) writing() context.Context {
	ctx, cancel := context.WithTimeout(h.spent, max(h.ping/2, 250*time.Millisecond))
	cancel() // it has ended anyway; its deadline stays
	return ctx
}

// tend writes and probes until the link is lost or unneeded. reading tells whether
// the reader is still to be waited for.
func (h *hub) tend(link *feed, ended <-chan error) (err error, reading bool) { //nolint:revive // the error is the answer, reading only a detail of it
	// Two questions per interval, and an answer due within one: a link is found
	// silent at most one and a half intervals after the last frame.
	ticker := time.NewTicker(max(h.ping/2, time.Millisecond))
	defer ticker.Stop()
	unanswered := time.Now() // since when a question has waited: the SUBSCRIBE, first
	last := unanswered
	for {
		select {
		case err := <-ended:
			return err, false
		case <-h.ctx.Done():
			return nil, true
		case <-h.wake:
			h.mu.Lock()
			unneeded := len(h.topics) == 0
			questions := link.ask(h.outbox)
			h.outbox = nil
			h.mu.Unlock()
			if unneeded {
				return nil, true
			}
			if err := h.write(h.writing(), link, questions); err != nil {
				return err, true
			}
		case <-ticker.C:
			now := time.Now()
			h.mu.Lock()
			answered := !h.lastProof.Before(unanswered)
			h.mu.Unlock()
			// A tick that comes late says that this process stood still, not the server.
			late := now.Sub(last) > h.ping*3/4
			last = now
			if answered || late {
				unanswered = now
			} else if now.Sub(unanswered) >= h.ping-h.ping/8 {
				return fmt.Errorf("%w for %v", errSilent, now.Sub(unanswered).Round(time.Millisecond)), true
			}
			if err := h.probe(link); err != nil {
				return err, true
			}
			if err := h.listenForEcho(link, now, late); err != nil {
				return err, true
			}
		}
	}
}

// probe sends a PING and asks again for what the server had refused.
func (h *hub) probe(link *feed) error {
	h.mu.Lock()
	var again []command
	for _, e := range h.topics {
		if e.refused {
			e.refused = false
			again = append(again, command{of: e, alone: true})
		}
	}
	link.asked = append(link.asked, question{})
	questions := link.ask(again)
	h.mu.Unlock()
	if err := link.pubsub.Ping(h.writing()); err != nil {
		return err
	}
	return h.write(h.writing(), link, questions)
}

// lose takes the present link away, or records that none could be made. A nil err is
// an end that was wanted.
func (h *hub) lose(err error) {
	h.mu.Lock()
	wasUp := h.link != nil && h.link.up
	h.link, h.outbox = nil, nil
	if err == nil {
		h.mu.Unlock()
		return
	}
	taken := 0
	for _, e := range h.topics {
		e.refused = false
		if e.confirmed {
			e.confirmed, e.lost = false, h.lastProof
			h.owed++
			taken++
		}
		for _, r := range e.sinks {
			if r.live {
				continue
			}
			// A link lost while the answer was awaited is worth one more try.
			if r.losses++; !wasUp || r.losses > 1 {
				h.fail(r, err)
			}
		}
	}
	begins := taken > 0 && h.outage.IsZero()
	if begins {
		h.outage = h.lastProof
	}
	h.mu.Unlock()
	if begins {
		h.events.dropped(taken, err)
	}
}
