package testkit

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/wrkbelt/coord/testkit/internal/process"
)

// EmbeddedRedis is a Redis-compatible server inside the test process: no program to
// install, ready in a millisecond. Keys expire by themselves, by the system clock or by
// a [Clock]; TIME agrees. It is one in-memory primary: for failover, cluster, eviction,
// RESP pushes to trackers or exact error texts use [StartRedis]. Safe for concurrent use.
type EmbeddedRedis struct {
	redis *miniredis.Miniredis
	port  *process.Port
	loops sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while down
	conns    []net.Conn
	closed   bool
}

// EmbeddedOption changes how an embedded Redis is made.
type EmbeddedOption func(*EmbeddedRedis)

// WithClock lets TTLs and TIME follow a clock that only the test moves.
func WithClock(clock *Clock) EmbeddedOption {
	return func(e *EmbeddedRedis) { clock.follow(e.redis.SetTime) }
}

// StartEmbeddedRedis starts an embedded Redis that ends with the test.
func StartEmbeddedRedis(t testing.TB, opts ...EmbeddedOption) *EmbeddedRedis {
	t.Helper()
	e, err := LaunchEmbeddedRedis(opts...)
	if err != nil {
		t.Fatalf("start embedded redis: %v", err)
	}
	t.Cleanup(e.Close)
	return e
}

// LaunchEmbeddedRedis starts an embedded Redis without a test; the caller closes it.
func LaunchEmbeddedRedis(opts ...EmbeddedOption) (*EmbeddedRedis, error) {
	e := &EmbeddedRedis{redis: miniredis.NewMiniRedis()}
	for _, o := range opts {
		o(e)
	}
	e.redis.ClockTTL(true)
	// A first in-memory connection starts it without a listener; ours can be taken away.
	first, err := e.redis.Dial()
	if err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	_ = first.Close()
	e.redis.Server().SetPreHook(answerAsPrimary)
	if e.port, err = process.ReservePort(); err != nil {
		e.redis.Close()
		return nil, err
	}
	if err := e.listen(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// answerAsPrimary answers what the embedded server does not know and a client may ask
// before it trusts a server: that it is a primary and evicts nothing.
func answerAsPrimary(c *server.Peer, cmd string, args ...string) bool {
	switch {
	case cmd == "ROLE" && len(args) == 0:
		c.WriteLen(3)
		c.WriteBulk("master")
		c.WriteInt(0)
		c.WriteLen(0)
	case cmd == "INFO" && len(args) == 1 && strings.EqualFold(args[0], "memory"):
		c.WriteBulk("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n")
	default:
		return false
	}
	return true
}

// Addr returns host:port. It stays the same over Down.
func (e *EmbeddedRedis) Addr() string { return e.port.Address() }

// URL returns redis://host:port.
func (e *EmbeddedRedis) URL() string { return "redis://" + e.Addr() }

// Keys returns the live keys of database 0 in order, so that a test can show that it
// leaves none behind.
func (e *EmbeddedRedis) Keys() []string { return e.redis.Keys() }

// TTL returns how long a key of database 0 has to live; 0 if it is absent or stays.
func (e *EmbeddedRedis) TTL(key string) time.Duration { return e.redis.TTL(key) }

// FlushAll deletes every key of every database.
func (e *EmbeddedRedis) FlushAll() { e.redis.FlushAll() }

// Down cuts every connection and refuses new ones, until it is called with false. The
// data stays.
func (e *EmbeddedRedis) Down(down bool) {
	if down {
		e.cut()
		return
	}
	if err := e.listen(); err != nil {
		panic(fmt.Sprintf("embedded redis comes back: %v", err)) // the port is ours
	}
}

// Close ends the server and its connections. Closing twice is fine.
func (e *EmbeddedRedis) Close() {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	e.mu.Unlock()
	if closed {
		return
	}
	e.cut()
	e.redis.Close()
	e.loops.Wait()
	e.port.Release()
}

func (e *EmbeddedRedis) listen() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", e.port.Address())
	if err != nil {
		return fmt.Errorf("embedded redis: %w", err)
	}
	e.listener = l
	e.loops.Go(func() { e.accept(l) })
	return nil
}

func (e *EmbeddedRedis) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		e.mu.Lock()
		if e.listener == l {
			e.conns = append(e.conns, c)
			e.redis.Server().ServeConn(watchedConn{c, e})
		} else {
			_ = c.Close() // accepted while going down
		}
		e.mu.Unlock()
	}
}

// cut closes the listener and every connection.
func (e *EmbeddedRedis) cut() {
	e.mu.Lock()
	l, conns := e.listener, e.conns
	e.listener, e.conns = nil, nil
	e.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	for _, c := range conns {
		_ = c.Close()
	}
}

// watchedConn forgets itself when the server closes it.
type watchedConn struct {
	net.Conn
	owner *EmbeddedRedis
}

func (c watchedConn) Close() error {
	c.owner.mu.Lock()
	if i := slices.Index(c.owner.conns, c.Conn); i >= 0 {
		c.owner.conns = slices.Delete(c.owner.conns, i, i+1)
	}
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
