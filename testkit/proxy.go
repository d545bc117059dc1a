package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/testkit/internal/process"
)

// Proxy stands between clients and a server on 127.0.0.1 and makes things go wrong
// where a network can. Made with [StartProxy] it knows Redis requests and replies, so
// that a fault can be aimed at one command; made with [StartTCPProxy] it carries any
// protocol and a "command" is one chunk of bytes from the client, its only word.
//
//   - the link: Refuse, BlackHole, Reset, Delay, Retarget
//   - the next matching command: DropNextRequest, DropNextReply, MuteNextReply,
//     HalveNextReply, HoldNextRequest, HoldNextReply
//   - every matching command: DropRequests, DropReplies, Unreliable
//   - what happened: Commands, ErrorReplies, Connections
//
// Safe for concurrent use. Not for Redis Cluster or Sentinel, whose clients learn the
// servers' own addresses; nor for TLS in its Redis form.
type Proxy struct {
	redis bool
	port  *process.Port
	loops sync.WaitGroup

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while it refuses
	conns    map[*proxyConn]struct{}
	closed   bool
	hole     bool
	delay    time.Duration
	traps    []*Trap
	odds     Odds
	dice     *rand.Rand
	commands map[string]int // forwarded, by upper-case name
	refusals map[string]int // error replies that passed, by code
}

// StartProxy starts a proxy for the Redis protocol in front of target (host:port),
// which ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return startProxy(t, LaunchProxy, target)
}

// StartTCPProxy starts a proxy for any protocol, which ends with the test.
func StartTCPProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return startProxy(t, LaunchTCPProxy, target)
}

func startProxy(t testing.TB, launch func(string) (*Proxy, error), target string) *Proxy {
	t.Helper()
	p, err := launch(target)
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// LaunchProxy is StartProxy without a test; the caller closes it.
func LaunchProxy(target string) (*Proxy, error) { return newProxy(target, true) }

// LaunchTCPProxy is StartTCPProxy without a test; the caller closes it.
func LaunchTCPProxy(target string) (*Proxy, error) { return newProxy(target, false) }

func newProxy(target string, redis bool) (*Proxy, error) {
	port, err := process.ReservePort()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		redis: redis, port: port, target: target, conns: map[*proxyConn]struct{}{},
		commands: map[string]int{}, refusals: map[string]int{},
	}
	if err := p.listen(); err != nil {
		port.Release()
		return nil, err
	}
	return p, nil
}

// Addr returns host:port of the proxy. It stays the same whatever goes wrong.
func (p *Proxy) Addr() string { return p.port.Address() }

// URL returns redis://host:port of the proxy.
func (p *Proxy) URL() string { return "redis://" + p.Addr() }

// Close cuts every connection and waits for their end. Closing twice is fine.
func (p *Proxy) Close() {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return
	}
	p.stopListening()
	p.cut(false, nil)
	p.loops.Wait()
	p.port.Release()
}

// Refuse makes new dials fail with "connection refused". Open connections live on:
// for a server that is gone, add Reset, or use Inject with [FaultDown].
func (p *Proxy) Refuse(refuse bool) {
	if refuse {
		p.stopListening()
		return
	}
	if err := p.listen(); err != nil {
		panic(fmt.Sprintf("proxy listens again: %v", err)) // the port is ours
	}
}

// BlackHole swallows what either side sends. New dials succeed and hear nothing. When
// it ends, the connections that lost bytes are reset: what they sent is never applied.
func (p *Proxy) BlackHole(on bool) {
	p.mu.Lock()
	p.hole = on
	p.mu.Unlock()
	if !on {
		p.cut(true, func(c *proxyConn) bool { return c.damaged.Load() })
	}
}

// Reset cuts every open connection with RST.
func (p *Proxy) Reset() { p.cut(true, nil) }

// Delay holds each reply back until d after its request, replies without a request
// until d after their coming. 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Retarget sends connections to another server, as a managed endpoint does after a
// failover, and cuts the open ones.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.cut(true, nil)
}

// Inject makes a conformance suite's fault happen; it fits [Backend].Fault.
func (p *Proxy) Inject(_ T, f Fault) (heal func()) {
	switch f {
	case FaultDown:
		p.Refuse(true)
		p.Reset()
		return func() { p.Refuse(false) }
	case FaultLoseReply:
		return p.DropNextReply(nil).Disarm
	case FaultLoseReplies:
		return p.DropReplies(nil).Disarm
	case FaultHang:
		p.BlackHole(true)
		return func() { p.BlackHole(false) }
	}
	panic(fmt.Sprintf("proxy cannot make the fault %q", f))
}

// Commands returns how many commands with one of these names were passed on to the
// server; without names, all but those that set a connection up. It is how a test
// counts round trips.
func (p *Proxy) Commands(names ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for name, count := range p.commands {
		if len(names) == 0 && !setsUp[name] || slices.ContainsFunc(names, func(s string) bool { return strings.EqualFold(s, name) }) {
			n += count
		}
	}
	return n
}

// ErrorReplies returns how many error replies with this code, such as NOSCRIPT, came
// from the server.
func (p *Proxy) ErrorReplies(code string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusals[code]
}

// ResetCounts sets Commands and ErrorReplies back to 0.
func (p *Proxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.commands)
	clear(p.refusals)
}

// Connections returns how many clients are connected now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.port.Address())
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	p.listener = l
	p.loops.Go(func() { p.accept(l) })
	return nil
}

func (p *Proxy) stopListening() {
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		c := &proxyConn{proxy: p, client: client.(*net.TCPConn), done: make(chan struct{})}
		p.mu.Lock()
		if p.closed || p.listener != l {
			p.mu.Unlock()
			c.cut(true) // accepted while it began to refuse
			continue
		}
		p.conns[c] = struct{}{}
		p.loops.Go(c.serve)
		p.mu.Unlock()
	}
}

// cut ends the connections that choose names, or all.
func (p *Proxy) cut(reset bool, choose func(*proxyConn) bool) {
	p.mu.Lock()
	var chosen []*proxyConn
	for c := range p.conns {
		if choose == nil || choose(c) {
			chosen = append(chosen, c)
		}
	}
	p.mu.Unlock()
	for _, c := range chosen {
		c.cut(reset)
	}
}
