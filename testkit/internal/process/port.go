package process

import (
	"net"
	"strconv"
)

// Port is a free TCP port of 127.0.0.1. Nothing listens on it, so a dial is refused
// until somebody does; where the system allows it the port is bound, so that nobody
// else is given it before Release.
type Port struct {
	number  int
	release func()
}

// Number returns the port's number.
func (p *Port) Number() int { return p.number }

// Address returns 127.0.0.1:<number>.
func (p *Port) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// Release gives the port back. Releasing twice is fine.
func (p *Port) Release() {
	if p.release != nil {
		p.release()
		p.release = nil
	}
}
