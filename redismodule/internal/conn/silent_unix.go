//go:build unix

package conn

import "syscall"

// silent tells whether the socket is open and has nothing to be read. One system call,
// which does not wait.
func silent(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
}
