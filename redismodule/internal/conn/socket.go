package conn

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// longPast is a deadline that ends whatever waits on a socket.
var longPast = time.Unix(1, 0)

// call is one command as its socket knows it. The client library does not notice a
// cancel while it waits for a reply; the call does, and ends the wait at the socket.
//
// It is also the context that the library gets: that of the caller, with a deadline that
// no other call of the link has at the time. The library sets that deadline on the
// socket it has chosen, and so tells which call the socket works for.
type call struct {
	context.Context
	deadline time.Time
	stop     func() bool // ends the watch on the caller's context

	mu        sync.Mutex
	socket    *socket // the one that works for this call
	cancelled bool
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

// switchboard knows the calls in flight of a link by their deadlines.
type switchboard struct {
	timeout time.Duration // bound of a call whose context has no earlier end
	closing context.Context
	cut     context.CancelFunc // ends closing, and with it every dial
	dials   atomic.Int64       // connections made so far

	mu    sync.Mutex
	calls map[int64]*call
	step  time.Duration // by which the last call made way for another
}

// begin registers a call of ctx, which can be cancelled; end must follow.
func (b *switchboard) begin(ctx context.Context) *call {
	deadline := time.Now().Add(b.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	c := &call{Context: ctx, deadline: deadline}
	b.mu.Lock()
	if b.calls == nil {
		b.calls = map[int64]*call{}
	}
	if len(b.calls) == 0 {
		b.step = 0
	}
	for b.calls[c.deadline.UnixNano()] != nil {
		// A step further than the one before, who may have had the same deadline.
		b.step = b.step%time.Millisecond + 1
		c.deadline = c.deadline.Add(-b.step)
	}
	b.calls[c.deadline.UnixNano()] = c
	b.mu.Unlock()
	c.stop = context.AfterFunc(ctx, c.cancel)
	return c
}

// end forgets a call that has settled, and tells which socket worked for it last.
func (b *switchboard) end(c *call) *socket {
	c.stop()
	b.mu.Lock()
	delete(b.calls, c.deadline.UnixNano())
	b.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.socket
}

func (b *switchboard) find(deadline time.Time) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[deadline.UnixNano()]
}

// socket is a connection whose deadlines say for which call it works.
type socket struct {
	net.Conn
	board *switchboard
	raw   syscall.RawConn // of the transport; nil: one cannot see whether it is alive

	mu    sync.Mutex
	owner *call // nil: a call that cannot be cancelled, or the library's own traffic
}

// tcpSocket is a socket whose liveness the library can see.
type tcpSocket struct{ *socket }

// SyscallConn implements syscall.Conn.
func (s tcpSocket) SyscallConn() (syscall.RawConn, error) { return s.raw, nil }

// newSocket wraps c, whose bytes transport carries: c itself, unless they are encrypted.
func newSocket(c, transport net.Conn, board *switchboard) net.Conn {
	board.dials.Add(1)
	s := &socket{Conn: c, board: board}
	if sys, ok := transport.(syscall.Conn); ok {
		if raw, err := sys.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	if s.raw != nil && c == transport {
		return tcpSocket{s}
	}
	return s
}

// SetDeadline implements net.Conn.
func (s *socket) SetDeadline(t time.Time) error { return s.until(t, s.Conn.SetDeadline) }

// SetReadDeadline implements net.Conn.
func (s *socket) SetReadDeadline(t time.Time) error { return s.until(t, s.Conn.SetReadDeadline) }

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(t time.Time) error { return s.until(t, s.Conn.SetWriteDeadline) }

// until sets a deadline, for the call that it belongs to, and within the timeout.
func (s *socket) until(t time.Time, set func(time.Time) error) error {
	if t.IsZero() {
		return set(t)
	}
	c := s.board.find(t)
	if c == nil {
		if latest := time.Now().Add(s.board.timeout); t.After(latest) {
			t = latest
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = c
	if c != nil && c.workOn(s) {
		t = longPast
	}
	return set(t)
}

// free sets a deadline for work that no call of the switchboard owns.
func (s *socket) free(deadline time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = nil
	return s.Conn.SetDeadline(deadline)
}

// interrupt ends what the socket does for c, unless it works for another by now.
func (s *socket) interrupt(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == c {
		_ = s.Conn.SetDeadline(longPast)
	}
}

// dialer connects, with TLS where it is configured, within the dial timeout.
func (b *switchboard) dialer(o Options) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 5 * time.Minute}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
		defer cancel()
		defer context.AfterFunc(b.closing, cancel)()
		c, err := dial(ctx, network, address)
		if err != nil && b.closing.Err() != nil {
			err = redis.ErrClosed
		}
		if err != nil {
			return nil, err
		}
		if o.TLS == nil {
			return newSocket(c, c, b), nil
		}
		config := o.TLS
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				host = address
			}
			config = config.Clone()
			config.ServerName = host
		}
		secured := tls.Client(c, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return newSocket(secured, c, b), nil
	}
}
