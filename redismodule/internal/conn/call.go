package conn

import (
	"context"
	"sync"
	"time"
)

// call is one command as its socket knows it. The client library does not notice a
// cancel while it waits for a reply; the call does, and ends the wait at the socket.
//
// It is also the context that the library gets: that of the caller, with a deadline that
// no other call of the link has at the time. The library sets that deadline on the
// socket it has chosen, and so tells which call the socket works for.
type call struct {
	context.Context
	deadline time.Time
	latest   time.Time   // when its request is given up, whoever still waits
	stop     func() bool // ends the watch on the caller's context
	settled  func()      // called once, when its request has settled
	counted  *sendMark   // of a request that, once sent, settles when it is answered

	mu        sync.Mutex
	socket    *socket // the one that works for this call
	cancelled bool
	over      bool // it has ended, or its request goes on without it
}

// Deadline implements context.Context.
func (c *call) Deadline() (time.Time, bool) { return c.deadline, true }

// cancel ends the call's wait, now or as soon as a socket begins to work for it.
func (c *call) cancel() {
	c.mu.Lock()
	c.cancelled = true
	s := c.socket
	c.mu.Unlock()
	if s != nil {
		s.interrupt(c)
	}
}

// workOn notes the socket and tells whether the call was cancelled before.
func (c *call) workOn(s *socket) (cancelled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket = s
	return c.cancelled
}

// isSent tells whether a counted request may have reached the server.
func (c *call) isSent() bool { return c.counted != nil && c.counted.sent() }

// finish tells whether the call was not over before.
func (c *call) finish() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := c.over
	c.over = true
	return !over
}

// switchboard knows the calls in flight of a link by their deadlines, and the sockets
// on which a reply is awaited that no caller waits for any more.
type switchboard struct {
	timeout time.Duration // bound of a call whose context has no earlier end

	mu     sync.Mutex
	calls  map[int64]*call
	late   map[*socket]bool
	closed bool
}

// begin registers a call of ctx; end must follow. counted may be nil.
func (b *switchboard) begin(ctx context.Context, counted *sendMark, settled func()) *call {
	latest := time.Now().Add(b.timeout)
	deadline := latest
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	c := &call{Context: ctx, deadline: deadline, latest: latest, counted: counted, settled: settled}
	b.mu.Lock()
	if b.calls == nil {
		b.calls = map[int64]*call{}
	}
	for b.calls[c.deadline.UnixNano()] != nil {
		c.deadline = c.deadline.Add(-1)
	}
	b.calls[c.deadline.UnixNano()] = c
	b.mu.Unlock()
	if ctx.Done() != nil {
		c.stop = context.AfterFunc(ctx, c.cancel)
	}
	return c
}

// end forgets a call, which has settled unless its reply is still awaited.
func (b *switchboard) end(c *call) {
	if c.stop != nil {
		c.stop()
	}
	b.mu.Lock()
	delete(b.calls, c.deadline.UnixNano())
	b.mu.Unlock()
	if c.finish() {
		c.settled()
	}
}

func (b *switchboard) find(deadline time.Time) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[deadline.UnixNano()]
}

// await waits, in the background, for the reply to the request that c's caller has
// left, and closes the socket then.
func (b *switchboard) await(s *socket, c *call) {
	b.mu.Lock()
	if b.closed {
		c.latest = longPast
	}
	if b.late == nil {
		b.late = map[*socket]bool{}
	}
	b.late[s] = true
	b.mu.Unlock()
	go func() {
		_ = s.Conn.SetReadDeadline(c.latest)
		_, _ = s.Conn.Read(make([]byte, 1)) // what it says interests nobody
		_ = s.Conn.Close()
		b.mu.Lock()
		delete(b.late, s)
		b.mu.Unlock()
		c.settled()
	}()
}

// close ends the waits for late replies, those to come included.
func (b *switchboard) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for s := range b.late {
		_ = s.Conn.Close()
	}
}
