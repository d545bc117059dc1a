//go:build !linux

package process

import (
	"fmt"
	"net"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

// ReservePort returns a port that was free a moment ago; this system cannot keep it
// for the caller, so starting a server on it may need another try.
func ReservePort() (*Port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	defer l.Close()
	return &Port{number: l.Addr().(*net.TCPAddr).Port}, nil
}
