package redismodule

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/wrkbelt/coord/testkit"
)

// faultNet is a network between a client and its server that can lose what a service
// must survive. It acts on whole commands, never on a connection's handshake, so that a
// lost reply is always the reply of a command that was applied.
type faultNet struct {
	mu     sync.Mutex
	faults map[testkit.Fault]int
	random func() (lose bool, delay time.Duration) // nil: no random faults
	conns  map[*faultConn]struct{}
	writes int // commands that were sent
}

func newFaultNet() *faultNet {
	return &faultNet{faults: map[testkit.Fault]int{}, conns: map[*faultConn]struct{}{}}
}

// inject makes f happen until heal is called.
func (n *faultNet) inject(f testkit.Fault) (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults[f]++
	if f == testkit.FaultDown {
		for c := range n.conns {
			_ = c.Conn.Close()
		}
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.faults[f] = max(0, n.faults[f]-1)
		if f == testkit.FaultHang { // what was swallowed is gone for good
			for c := range n.conns {
				_ = c.Conn.Close()
			}
		}
	}
}

func (n *faultNet) has(f testkit.Fault) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults[f] > 0
}

// loses decides whether the reply of the command just sent is lost.
func (n *faultNet) loses() (lose bool, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writes++
	if n.faults[testkit.FaultLoseReplies] > 0 {
		return true, 0
	}
	if n.faults[testkit.FaultLoseReply] > 0 {
		n.faults[testkit.FaultLoseReply]--
		return true, 0
	}
	if n.random != nil {
		return n.random()
	}
	return false, 0
}

// sent is the number of commands that went out so far.
func (n *faultNet) sent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writes
}

// withRandomFaults loses one reply in lossOneIn and delays as many by up to delay.
func (n *faultNet) withRandomFaults(seed uint64, lossOneIn int, delay time.Duration) {
	random := rand.New(rand.NewPCG(seed, seed))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.random = func() (bool, time.Duration) {
		switch random.IntN(lossOneIn) {
		case 0:
			return true, 0
		case 1:
			return false, time.Duration(random.Int64N(int64(delay)))
		}
		return false, 0
	}
}

// calm ends the random faults.
func (n *faultNet) calm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.random = nil
}

func (n *faultNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if n.has(testkit.FaultDown) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("refused by the test")}
	}
	var d net.Dialer
	inner, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &faultConn{Conn: inner, net: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = struct{}{}
	return c, nil
}

type faultConn struct {
	net.Conn
	net *faultNet

	mu    sync.Mutex
	lose  bool
	delay time.Duration
}

func (c *faultConn) Write(p []byte) (int, error) {
	if c.net.has(testkit.FaultHang) {
		return len(p), nil // swallowed; the reader waits for ever
	}
	if command := firstWord(p); command != "hello" && command != "client" && command != "ping" && command != "select" && command != "auth" {
		lose, delay := c.net.loses()
		c.mu.Lock()
		c.lose, c.delay = lose, delay
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *faultConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	lose, delay := c.lose, c.delay
	c.lose, c.delay = false, 0
	c.mu.Unlock()
	if lose && err == nil { // the reply arrived, so the command was applied
		_ = c.Close()
		return 0, io.EOF
	}
	if delay > 0 {
		timer := time.NewTimer(delay)
		<-timer.C
	}
	return n, err
}

func (c *faultConn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// firstWord is the lower-case name of the command that p begins with.
func firstWord(p []byte) string {
	parts := bytes.SplitN(p, []byte("\r\n"), 4)
	if len(parts) < 3 {
		return ""
	}
	return string(bytes.ToLower(parts[2]))
}
