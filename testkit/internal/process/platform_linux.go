package process

import (
	"fmt"
	"os"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// ReservePort returns a free port. It is bound with SO_REUSEADDR and not listened on:
// Linux then lets another socket with that option, as every server's is, bind and
// listen, but never picks the port for anybody who asks for a free one.
func ReservePort() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("socket", err))
	}
	fail := func(call string, err error) (*Port, error) {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError(call, err))
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return fail("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fail("bind", err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return fail("getsockname", err)
	}
	return &Port{
		number:  bound.(*syscall.SockaddrInet4).Port,
		release: func() { _ = syscall.Close(fd) },
	}, nil
}
