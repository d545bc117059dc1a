package testkit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/testkit/internal/resp"
)

// proxyConn is one client's connection through a proxy.
type proxyConn struct {
	proxy   *Proxy
	client  *net.TCPConn
	done    chan struct{} // closed by cut
	damaged atomic.Bool   // bytes of it were swallowed
	muted   atomic.Bool   // its replies are swallowed

	mu     sync.Mutex
	server *net.TCPConn // nil until dialed
	isCut  bool
	orders []order // of the commands whose replies have not come yet
	// loose means that replies no longer answer commands one by one: a subscriber's
	// connection, or a protocol the proxy does not know. An order then meets the next
	// message from the server, whatever that is.
	loose      bool
	looseOrder *order
}

// serve carries the connection until its end.
func (c *proxyConn) serve() {
	defer func() {
		c.cut(false)
		c.proxy.mu.Lock()
		delete(c.proxy.conns, c)
		c.proxy.mu.Unlock()
	}()
	if c.swallowing() {
		_, _ = io.Copy(io.Discard, c.client)
		return
	}
	c.proxy.mu.Lock()
	target := c.proxy.target
	c.proxy.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		c.cut(true)
		return
	}
	c.mu.Lock()
	c.server, c.loose = server.(*net.TCPConn), !c.proxy.redis
	gone := c.isCut
	c.mu.Unlock()
	if gone {
		_ = server.Close()
		return
	}
	var down sync.WaitGroup
	down.Go(func() {
		c.replies()
		c.cut(false)
	})
	if c.requests() {
		_ = c.server.CloseWrite() // the client has said all; it may still listen
	} else {
		c.cut(false)
	}
	down.Wait()
}

// cut ends the connection, with RST if told so.
func (c *proxyConn) cut(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		return
	}
	c.isCut = true
	close(c.done)
	if reset {
		_ = c.client.SetLinger(0)
	}
	_ = c.client.Close()
	if c.server != nil {
		_ = c.server.Close()
	}
}

// swallowing tells whether the proxy is a black hole, and remembers that the
// connection has lost bytes by it.
func (c *proxyConn) swallowing() bool {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	if c.proxy.hole {
		c.damaged.Store(true)
	}
	return c.damaged.Load()
}

// requests carries what the client says. It returns true when the client has ended
// its side in good order.
func (c *proxyConn) requests() bool {
	next := chunks(c.client)
	if c.proxy.redis {
		next = messages(c.client)
	}
	for {
		m, err := next()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		cmd := m.Args()
		if len(cmd) == 0 {
			if c.proxy.redis {
				return false // no command of the protocol
			}
			cmd = []string{string(m.Raw)}
		}
		if c.swallowing() {
			continue
		}
		o := c.proxy.judge(cmd)
		switch o.damage {
		case dropRequest:
			return false
		case holdRequest:
			if !await(c, o.trap.released) {
				return false
			}
		}
		c.expect(cmd, o)
		if _, err := c.server.Write(m.Raw); err != nil {
			return false
		}
	}
}

// expect notes what the reply to a command is to meet, and counts the command.
func (c *proxyConn) expect(cmd []string, o order) {
	name := ""
	if c.proxy.redis {
		name = strings.ToUpper(cmd[0])
	}
	c.proxy.mu.Lock()
	c.proxy.commands[name]++
	c.proxy.mu.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()
	switch name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR":
		c.loose = true
	}
	switch {
	case !c.loose:
		c.orders = append(c.orders, o)
	case c.looseOrder == nil || o.damage != unharmed:
		c.looseOrder = &o
	}
}

// replies carries what the server says.
func (c *proxyConn) replies() {
	next := chunks(c.server)
	if c.proxy.redis {
		next = messages(c.server)
	}
	for {
		m, err := next()
		if err != nil {
			return
		}
		c.proxy.countRefusal(m)
		o := c.orderFor(m)
		if wait := time.Until(o.due); wait > 0 {
			timer := time.NewTimer(wait)
			ok := await(c, timer.C)
			timer.Stop()
			if !ok {
				return
			}
		}
		switch o.damage {
		case dropReply:
			return
		case muteReply:
			c.muted.Store(true)
		case halveReply:
			m.Raw = m.Raw[:(len(m.Raw)+1)/2]
		case holdReply:
			if !await(c, o.trap.released) {
				return
			}
		}
		if c.muted.Load() || c.swallowing() {
			continue
		}
		if _, err := c.client.Write(m.Raw); err != nil || o.damage == halveReply {
			return
		}
	}
}

// orderFor returns what a message from the server is to meet.
func (c *proxyConn) orderFor(m resp.Message) order {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.orders) > 0 && !m.Push() {
		o := c.orders[0]
		c.orders = c.orders[1:]
		return o
	}
	if c.looseOrder != nil {
		o := *c.looseOrder
		c.looseOrder = nil
		return o
	}
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	return order{due: time.Now().Add(c.proxy.delay)}
}

// await waits for an event and tells whether it came before the connection's end.
func await[E any](c *proxyConn, event <-chan E) bool {
	select {
	case <-event:
		return true
	case <-c.done:
		return false
	}
}

func (p *Proxy) countRefusal(m resp.Message) {
	if refusal, ok := m.Value.(resp.Error); ok {
		code, _, _ := strings.Cut(string(refusal), " ")
		p.mu.Lock()
		p.refusals[code]++
		p.mu.Unlock()
	}
}

// messages reads one message of the Redis protocol after the other.
func messages(r io.Reader) func() (resp.Message, error) {
	b := bufio.NewReader(r)
	return func() (resp.Message, error) { return resp.Read(b) }
}

// chunks reads whatever comes.
func chunks(r io.Reader) func() (resp.Message, error) {
	buffer := make([]byte, 64<<10)
	return func() (resp.Message, error) {
		n, err := r.Read(buffer)
		if n > 0 {
			return resp.Message{Raw: buffer[:n]}, nil
		}
		return resp.Message{}, err
	}
}
