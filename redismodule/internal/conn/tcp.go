package conn

import "syscall"

// tcpSocket is a socket whose liveness the library can see. It does so before each
// command, by a system call.
type tcpSocket struct {
	*socket
	look syscall.RawConn // a rawConn
}

func newTCPSocket(s *socket, raw syscall.RawConn) *tcpSocket {
	t := &tcpSocket{socket: s}
	t.look = rawConn{raw, t}
	return t
}

// SyscallConn implements syscall.Conn.
func (s *tcpSocket) SyscallConn() (syscall.RawConn, error) { return s.look, nil }

// rawConn is what the library looks at a socket with.
type rawConn struct {
	syscall.RawConn
	socket *tcpSocket
}

// Read implements syscall.RawConn.
func (r rawConn) Read(look func(fd uintptr) (done bool)) error {
	// A deadline that is armed and no longer wanted would keep it from looking.
	if err := r.socket.disarm(); err != nil {
		return err
	}
	return r.RawConn.Read(look)
}

func (s *tcpSocket) disarm() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read.wanted.IsZero() && !s.read.armed.IsZero() {
		return s.read.arm()
	}
	return nil
}
