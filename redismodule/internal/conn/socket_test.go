package conn

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// socketPair is a socket and its peer.
func socketPair(t *testing.T) (*tcpSocket, net.Conn, *switchboard) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	board := &switchboard{timeout: time.Hour}
	s, ok := newSocket(dialled, board).(*tcpSocket)
	if !ok {
		t.Fatal("no TCP socket")
	}
	t.Cleanup(func() { _, _ = peer.Close(), s.Close() })
	return s, peer, board
}

// read reads a byte by the deadline, and tells how long it took.
func read(s net.Conn, by time.Time) (time.Duration, error) {
	began := time.Now()
	_ = s.SetReadDeadline(by)
	_, err := s.Read(make([]byte, 1))
	return time.Since(began), err
}

const (
	soon  = 60 * time.Millisecond
	later = 20 * time.Second
)

func send(t *testing.T, peer net.Conn) {
	t.Helper()
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Error(err)
	}
}

func TestAnEarlierCallsDeadlineEndsNoLaterWait(t *testing.T) {
	s, peer, _ := socketPair(t)
	send(t, peer)
	if _, err := read(s, time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(3*soon, func() { send(t, peer) })
	if took, err := read(s, time.Now().Add(later)); err != nil || took < 2*soon {
		t.Fatalf("%v after %v", err, took)
	}
	_ = s.SetReadDeadline(time.Now().Add(soon))
	time.AfterFunc(3*soon, func() { send(t, peer) })
	if took, err := read(s, time.Time{}); err != nil || took < 2*soon {
		t.Fatalf("without a deadline: %v after %v", err, took)
	}
}

func TestTheWantedDeadlineEndsTheWait(t *testing.T) {
	s, peer, _ := socketPair(t)
	for name, before := range map[string]time.Duration{"after an earlier one": soon / 2, "after a later one": later, "after a passed one": -1} {
		_ = s.SetReadDeadline(time.Now().Add(before))
		if before > 0 {
			send(t, peer)
		}
		_, _ = s.Read(make([]byte, 1))
		took, err := read(s, time.Now().Add(soon))
		if !errors.Is(err, os.ErrDeadlineExceeded) || took < soon/2 || took > later/2 {
			t.Errorf("%s: %v after %v", name, err, took)
		}
		_ = s.SetReadDeadline(time.Time{})
	}
	_ = s.SetWriteDeadline(time.Now().Add(soon / 2))
	_ = s.SetWriteDeadline(time.Now().Add(soon))
	began := time.Now()
	var err error
	for err == nil { // nobody reads
		_, err = s.Write(make([]byte, 1<<20))
	}
	if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took > later/2 {
		t.Errorf("a write: %v after %v", err, took)
	}
}

// What was written before the earlier deadline woke the writer is not written again.
func TestAWriteThatAnEarlierDeadlineWakesGoesOnWhereItWas(t *testing.T) {
	s, peer, _ := socketPair(t)
	_ = s.SetWriteDeadline(time.Now().Add(soon))
	_ = s.SetWriteDeadline(time.Now().Add(later))
	sent := make([]byte, 16<<20)
	for i := range sent {
		sent[i] = byte(i * 7 >> 3)
	}
	got := make(chan []byte)
	time.AfterFunc(3*soon, func() {
		all := make([]byte, 0, len(sent))
		b := make([]byte, 1<<16)
		for len(all) < len(sent) {
			n, err := peer.Read(b)
			if err != nil {
				break
			}
			all = append(all, b[:n]...)
		}
		got <- all
	})
	if n, err := s.Write(sent); n != len(sent) || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if string(<-got) != string(sent) {
		t.Fatal("something else arrived")
	}
}

func TestACancelEndsTheWaitBeforeAnyDeadline(t *testing.T) {
	s, _, board := socketPair(t)
	_ = s.SetReadDeadline(time.Now().Add(later / 2)) // armed earlier
	ctx, cancel := context.WithCancel(t.Context())
	c := board.begin(ctx, nil, func() {})
	defer board.end(c)
	time.AfterFunc(soon, cancel)
	deadline, _ := c.Deadline()
	if took, err := read(s, deadline); !errors.Is(err, os.ErrDeadlineExceeded) || took > later/4 {
		t.Fatalf("%v after %v", err, took)
	}
}

// looks asks the socket as the client library does before a command.
func looks(t *testing.T, s *tcpSocket) (looked, alive bool) {
	t.Helper()
	_ = s.SetDeadline(time.Time{})
	raw, _ := s.SyscallConn()
	err := raw.Read(func(fd uintptr) bool {
		looked = true
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		alive = n < 0 && errors.Is(err, syscall.EAGAIN)
		return true
	})
	return looked, alive && err == nil
}

func TestASocketIsLookedAtWhateverDeadlineItHad(t *testing.T) {
	s, peer, _ := socketPair(t)
	for _, before := range []time.Duration{later, -1, time.Millisecond} {
		_ = s.SetReadDeadline(time.Now().Add(before))
		time.Sleep(3 * time.Millisecond)
		if looked, alive := looks(t, s); !looked || !alive {
			t.Fatalf("after a deadline in %v: looked %v, alive %v", before, looked, alive)
		}
	}
	_ = peer.Close()
	deadline := time.Now().Add(later)
	for {
		if _, alive := looks(t, s); !alive {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a closed connection counts as alive")
		}
		time.Sleep(time.Millisecond)
	}
}
