package conn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// longPast is a deadline that ends whatever waits on a socket.
var longPast = time.Unix(1, 0)

// socket is a connection whose deadlines say for which call it works.
type socket struct {
	net.Conn
	board *switchboard

	mu    sync.Mutex
	owner *call // nil: a call that cannot be cancelled, or the library's own traffic
	read  limit
	write limit
	// unanswered: the wait for the owner's reply ended before it came.
	unanswered bool
}

func newSocket(c net.Conn, board *switchboard) net.Conn {
	s := &socket{Conn: c, board: board, read: limit{set: c.SetReadDeadline}, write: limit{set: c.SetWriteDeadline}}
	if tcp, ok := c.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			s.read.lazy, s.write.lazy = true, true
			return newTCPSocket(s, raw)
		}
	}
	return s
}

// SetDeadline implements net.Conn.
func (s *socket) SetDeadline(t time.Time) error { return s.until(t, &s.read, &s.write) }

// SetReadDeadline implements net.Conn.
func (s *socket) SetReadDeadline(t time.Time) error { return s.until(t, &s.read) }

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(t time.Time) error { return s.until(t, &s.write) }

// until sets a deadline, for the call that it belongs to, and within the timeout.
func (s *socket) until(t time.Time, limits ...*limit) error {
	now := time.Now()
	var c *call
	if !t.IsZero() {
		if c = s.board.find(t); c == nil {
			if latest := now.Add(s.board.timeout); t.After(latest) {
				t = latest
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.IsZero() {
		s.owner, s.unanswered = c, false
		if c != nil && c.workOn(s) {
			t = longPast
		}
	}
	var err error
	for _, l := range limits {
		err = cmp.Or(err, l.until(t, now))
	}
	return err
}

// interrupt ends what the socket does for c, unless it works for another by now.
func (s *socket) interrupt(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == c {
		now := time.Now()
		_, _ = s.read.until(longPast, now), s.write.until(longPast, now)
	}
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (n int, err error) {
	for {
		if n, err = s.Conn.Read(b); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		s.mu.Lock()
		early := s.read.early(time.Now())
		s.unanswered = !early
		s.mu.Unlock()
		if !early {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (n int, err error) {
	for {
		var some int
		some, err = s.Conn.Write(b[n:])
		if n += some; !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		s.mu.Lock()
		early := s.write.early(time.Now())
		s.mu.Unlock()
		if !early {
			return n, err
		}
	}
}

// Close implements net.Conn. It is put off while the reply to a counted call is awaited.
func (s *socket) Close() error {
	s.mu.Lock()
	c := s.owner
	late := s.unanswered && c != nil && c.isSent() && c.finish()
	if late {
		s.owner = nil // whose cancel ends nothing any more
	}
	s.mu.Unlock()
	if !late {
		return s.Conn.Close()
	}
	s.board.await(s, c)
	return nil
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
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if o.TLS == nil {
			return newSocket(c, b), nil
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
		return newSocket(secured, b), nil
	}
}
