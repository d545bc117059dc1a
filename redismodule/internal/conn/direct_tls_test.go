package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/testkit"
)

// certified gives what the two sides of an encrypted connection need to trust each other.
func certified() (server, client *tls.Config) {
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	return &tls.Config{Certificates: web.TLS.Certificates}, &tls.Config{RootCAs: roots, ServerName: "example.com"}
}

// gathered is a connection whose writes go out together when told.
type gathered struct {
	net.Conn
	hold bool
	all  []byte
}

func (g *gathered) Write(b []byte) (int, error) {
	if !g.hold {
		return g.Conn.Write(b)
	}
	g.all = append(g.all, b...)
	return len(b), nil
}

func TestAnEncryptedRecordAfterAReplyReachesNobody(t *testing.T) {
	ofServer, ofClient := certified()
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	defer func() { _ = far.Close() }()
	out := &gathered{Conn: far}
	server, client := tls.Server(out, ofServer), tls.Client(near, ofClient)
	d := &direct{socket: &socket{Conn: client, board: &switchboard{timeout: later}}, in: bufio.NewReader(client)}
	for _, stray := range []bool{false, true} {
		served := make(chan struct{})
		go func() {
			defer close(served)
			_, _ = server.Read(make([]byte, 100))
			out.hold, out.all = true, nil
			_, _ = server.Write([]byte("+one\r\n"))
			if stray {
				_, _ = server.Write([]byte("+STRAY\r\n"))
			}
			out.hold = false
			_, _ = far.Write(out.all)
		}()
		reply, _, err := d.do(context.Background(), time.Now().Add(later), []any{"PING"})
		<-served
		if reply != "one" || err != nil {
			t.Fatal(reply, err)
		}
		if alive := d.alive(); alive == stray {
			t.Fatalf("alive: %v, with a stray record: %v", alive, stray)
		}
	}
}

// encrypted is a server of TLS in front of another, which lives as long as the test, and
// what a client needs for it.
func encrypted(t *testing.T, target string) (address string, config *tls.Config, reset func()) {
	t.Helper()
	ofServer, config := certified()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", ofServer)
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu    sync.Mutex
		conns []net.Conn
		all   sync.WaitGroup
	)
	reset = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
		conns = nil
	}
	t.Cleanup(func() {
		_ = listener.Close()
		reset()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = c.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, c, server)
			mu.Unlock()
			for from, to := range map[net.Conn]net.Conn{c: server, server: c} {
				all.Go(func() {
					_, _ = io.Copy(to, from)
					_ = to.Close()
				})
			}
		}
	})
	return listener.Addr().String(), config, reset
}

func TestSmallRequestsGoStraightOverTLS(t *testing.T) {
	server := testkit.StartRedis(t)
	address, config, reset := encrypted(t, server.Addr())
	s := &straight{server: server, Command: NewCommand(Options{
		Mode: Standalone, Addresses: []string{address}, Protocol: 3, PoolSize: 4, TLS: config,
		DialTimeout: later, PoolTimeout: later, CommandTimeout: later,
	})}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	long := strings.Repeat("x", 100_000)
	for range 3 {
		for range 3 {
			s.echoes(t)
			if reply, err := s.small(t.Context(), "ECHO", long); err != nil || reply != long {
				t.Error(err)
			}
		}
		s.has(t, 1)
		d := s.directs.idle[0]
		reset()
		for began := time.Now(); d.alive(); <-time.After(time.Millisecond) {
			if time.Since(began) > later/2 {
				t.Fatal("a connection that the server closed is taken as open")
			}
		}
	}
}
