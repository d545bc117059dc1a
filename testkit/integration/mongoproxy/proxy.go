// Package mongoproxy stands between a client and a server that speaks MongoDB's
// protocol and makes things go wrong on the way. It understands the protocol as far
// as to tell the commands of an operation from the driver's own heartbeats.
package mongoproxy

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/wrkbelt/coord/testkit"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Proxy forwards the messages of every connection to one server. Safe for concurrent
// use.
type Proxy struct {
	listener net.Listener
	server   string
	all      sync.WaitGroup

	mu     sync.Mutex
	fault  testkit.Fault
	before func(command string)
	conns  map[net.Conn]bool
	closed bool
}

// Start starts a proxy in front of server, host:port, that ends with the test.
func Start(t testing.TB, server string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("mongo proxy: %v", err)
	}
	p := &Proxy{listener: listener, server: server, conns: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		listener.Close()
		p.cut()
		p.all.Wait()
	})
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Inject makes f happen until heal is called. [testkit.FaultLoseReply] happens to the
// next operation that is not a hello.
func (p *Proxy) Inject(f testkit.Fault) (heal func()) {
	p.mu.Lock()
	p.fault = f
	p.mu.Unlock()
	if f == testkit.FaultDown {
		p.cut()
	}
	return func() {
		p.mu.Lock()
		p.fault = ""
		p.mu.Unlock()
		if f == testkit.FaultHang {
			p.cut() // what was swallowed is not answered any more
		}
	}
}

// Before calls f with the name of each command before it is forwarded; f may inject a
// fault for it. nil ends that.
func (p *Proxy) Before(f func(command string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = f
}

func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(client) })
	}
}

// track registers a connection, unless there are to be none.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fault == testkit.FaultDown {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) release(c net.Conn) {
	c.Close()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// serve forwards one request and its reply after the other.
func (p *Proxy) serve(client net.Conn) {
	defer p.release(client)
	if !p.track(client) {
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer p.release(server)
	if !p.track(server) {
		return
	}
	for {
		request, err := readMessage(client)
		if err != nil {
			return
		}
		command := commandName(request)
		p.mu.Lock()
		before := p.before
		p.mu.Unlock()
		if before != nil {
			before(command)
		}
		drop, swallow := p.verdict(command)
		if swallow {
			continue
		}
		if _, err := server.Write(request); err != nil {
			return
		}
		reply, err := readMessage(server)
		if err != nil || drop {
			return
		}
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// verdict decides what happens to a request.
func (p *Proxy) verdict(command string) (drop, swallow bool) {
	operation := command != "hello" && command != "isMaster" && command != "ismaster" && command != ""
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fault == testkit.FaultHang:
		swallow = true
	case p.fault == testkit.FaultLoseReplies && operation:
		drop = true
	case p.fault == testkit.FaultLoseReply && operation:
		drop, p.fault = true, ""
	}
	return drop, swallow
}

// maxMessage bounds one message of the protocol.
const maxMessage = 48 << 20

func readMessage(c net.Conn) ([]byte, error) {
	var header [16]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return nil, err
	}
	length := int(binary.LittleEndian.Uint32(header[:]))
	if length < len(header) || length > maxMessage {
		return nil, io.ErrUnexpectedEOF
	}
	message := make([]byte, length)
	copy(message, header[:])
	_, err := io.ReadFull(c, message[len(header):])
	return message, err
}

// commandName is the first field of an OP_MSG's document, "" for other messages.
func commandName(message []byte) string {
	const opMsg, bodyAt = 2013, 16 + 4 + 1
	if binary.LittleEndian.Uint32(message[12:]) != opMsg || len(message) < bodyAt || message[bodyAt-1] != 0 {
		return ""
	}
	elements, err := bson.Raw(message[bodyAt:]).Elements()
	if err != nil || len(elements) == 0 {
		return ""
	}
	return elements[0].Key()
}
