package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

var smallOp = Op{Name: "small", Key: "k", Small: true}

// straight is a connection to a server of its own, with an idle direct one.
type straight struct {
	*Command
	server *testkit.RedisServer
	proxy  *testkit.Proxy
}

func newStraight(t *testing.T, change func(*Options)) *straight {
	t.Helper()
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	o := Options{
		Mode: Standalone, Addresses: []string{proxy.Addr()}, Protocol: 3, PoolSize: 4,
		DialTimeout: later, PoolTimeout: later, CommandTimeout: later,
	}
	if change != nil {
		change(&o)
	}
	s := &straight{NewCommand(o), server, proxy}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	s.echoes(t)
	if n := s.directs.spare(); n != 1 {
		t.Fatalf("%d idle direct connections after the first request", n)
	}
	proxy.ResetCounts()
	return s
}

func (s *straight) small(ctx context.Context, args ...any) (any, error) {
	return s.Do(ctx, smallOp, args...)
}

// echoes makes a request and demands its own reply.
func (s *straight) echoes(t *testing.T) {
	t.Helper()
	text := fmt.Sprint(rand.Int64())
	if reply, err := s.small(t.Context(), "ECHO", text); err != nil || reply != text {
		t.Errorf("%v, %v, want %q", reply, err, text)
	}
}

// has demands that so many connections are direct, in use or not.
func (s *straight) has(t *testing.T, want int) {
	t.Helper()
	s.directs.mu.Lock()
	defer s.directs.mu.Unlock()
	if s.directs.count != want {
		t.Errorf("%d direct connections, want %d", s.directs.count, want)
	}
}

// held makes a request whose reply the proxy keeps until the trap is disarmed.
func (s *straight) held(t *testing.T, ctx context.Context, args ...any) (*testkit.Trap, <-chan outcome) {
	t.Helper()
	trap := s.proxy.HoldNextReply(nil)
	done := make(chan outcome, 1)
	go func() {
		reply, err := s.small(ctx, args...)
		done <- outcome{reply, err}
	}()
	<-trap.Hit()
	return trap, done
}

// left returns when the proxy, whose end follows the server's, has no connection.
func (s *straight) left() {
	for s.proxy.Connections() > 0 {
		<-time.After(time.Millisecond)
	}
}

func TestSmallRequestsGoOverOneConnectionWithTheRepliesOfTheLibrary(t *testing.T) {
	s := newStraight(t, nil)
	for _, args := range [][]any{
		{"SET", "k", "v"}, {"GET", "k"}, {"GET", "none"}, {"INCR", "n"}, {"RPUSH", "l", "a", "", "c"}, {"LRANGE", "l", 0, -1}, {"LRANGE", "none", 0, "-1"},
		{"EVAL", `return {1, {false, "x", {ok="fine"}}, tonumber(ARGV[1])}`, 0, int64(-5)}, {"EVAL", "return false", "0"},
	} {
		direct, err := s.small(t.Context(), args...)
		if err != nil {
			t.Error(args, err)
		}
		switch args[0] {
		case "INCR":
			s.server.Must("DEL", "n")
		case "RPUSH":
			s.server.Must("DEL", "l")
		}
		library, err := s.Do(t.Context(), Op{Name: "library", Key: "k"}, args...)
		if err != nil || !reflect.DeepEqual(direct, library) {
			t.Errorf("%v: %#v, of the library %#v, %v", args, direct, library, err)
		}
	}
	s.has(t, 1)
	if n := s.proxy.Connections(); n != 2 { // and the library's
		t.Errorf("%d connections", n)
	}
}

func TestTheFirstReplyOfADirectConnectionMayBeNothing(t *testing.T) {
	s := newStraight(t, nil)
	trap, done := s.held(t, t.Context(), "ECHO", "held")
	if reply, err := s.small(t.Context(), "GET", "none"); reply != nil || err != nil {
		t.Error(reply, err)
	}
	s.has(t, 2)
	trap.Disarm()
	if o := <-done; o.err != nil {
		t.Error(o.err)
	}
}

func TestALostIdleDirectConnectionIsFoundBeforeTheRequestIsSent(t *testing.T) {
	for _, lose := range []struct {
		name string
		do   func(s *straight)
	}{
		{"reset", func(s *straight) { s.proxy.Reset() }},
		{"killed by the server", func(s *straight) {
			s.server.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			s.left()
		}},
		{"restart", func(s *straight) {
			s.server.Restart()
			s.left()
		}},
	} {
		t.Run(lose.name, func(t *testing.T) {
			s := newStraight(t, nil)
			for range 5 {
				lose.do(s)
				s.echoes(t)
				s.has(t, 1)
			}
		})
	}
}

// A server's push is the end of a connection: it is not to be taken for a reply.
func TestWhatTheServerSendsUnaskedIsNoReply(t *testing.T) {
	s := newStraight(t, nil)
	track := func() {
		t.Helper()
		for _, args := range [][]any{{"CLIENT", "TRACKING", "ON"}, {"GET", "k"}} {
			if _, err := s.small(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	track()
	s.server.Must("SET", "k", "v") // and the server tells so
	for s.directs.idle[0].alive() {
		<-time.After(time.Millisecond)
	}
	s.echoes(t)

	// Now with the reply to a request.
	track()
	reply, err := s.small(t.Context(), "SET", "k", "v")
	if !errors.Is(err, semantic.ErrUnknown) && (err != nil || reply != "OK") {
		t.Error(reply, err)
	}
	s.echoes(t)
}

func TestADirectConnectionServesNobodyAfterACutOffRequest(t *testing.T) {
	for name, c := range map[string]struct {
		ctx   func(*testing.T) context.Context
		cause error
	}{
		"a cancel": {func(t *testing.T) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(soon, cancel)
			return ctx
		}, context.Canceled},
		"a deadline": {func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			t.Cleanup(cancel)
			return ctx
		}, context.DeadlineExceeded},
		"a deadline that does not end it": {func(t *testing.T) context.Context {
			return endless{t.Context(), time.Now().Add(soon)}
		}, context.DeadlineExceeded},
		"the command's timeout": {func(*testing.T) context.Context { return context.Background() }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStraight(t, func(o *Options) { o.CommandTimeout = 5 * soon })
			began := time.Now()
			trap, done := s.held(t, c.ctx(t), "INCR", "n")
			o := <-done
			if !errors.Is(o.err, semantic.ErrUnknown) || !errors.Is(o.err, c.cause) || time.Since(began) > later/2 {
				t.Errorf("%v after %v, want it unknown because of %v", o.err, time.Since(began), c.cause)
			}
			trap.Disarm()
			s.has(t, 0)
			s.echoes(t)
			if n := s.server.Must("GET", "n"); n != "1" {
				t.Errorf("applied %v times", n)
			}
		})
	}
}

func TestNoReplyReachesAnotherCallerWhoeverLeaves(t *testing.T) {
	s := newStraight(t, func(o *Options) { o.PoolSize = 8 })
	s.proxy.Delay(200 * time.Microsecond)
	var known, unknown, wrong atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				if n%3 > 0 {
					time.AfterFunc(time.Duration(rand.IntN(1500))*time.Microsecond, cancel)
				}
				text := fmt.Sprint(i, ":", n)
				reply, err := s.small(ctx, "EVAL", "redis.call('INCR', KEYS[1]); return ARGV[1]", 1, "n", text)
				switch {
				case err == nil && reply == text:
					known.Add(1)
				case err == nil:
					wrong.Add(1)
				case errors.Is(err, semantic.ErrUnknown):
					unknown.Add(1)
				case !errors.Is(err, semantic.ErrUnavailable):
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	var applied int64
	if _, err := fmt.Sscan(fmt.Sprint(s.server.Must("GET", "n")), &applied); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d known, %d unknown, %d applied", known.Load(), unknown.Load(), applied)
	if wrong.Load() > 0 || unknown.Load() == 0 || applied < known.Load() || applied > known.Load()+unknown.Load() {
		t.Errorf("%d replies of others, %d known, %d unknown, %d applied", wrong.Load(), known.Load(), unknown.Load(), applied)
	}
}

func TestDirectConnectionsAreAtMostHalfOfThePool(t *testing.T) {
	s := newStraight(t, func(o *Options) { o.PoolSize = 5 })
	release := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		trap, done := s.held(t, t.Context(), "ECHO", "held")
		all.Go(func() {
			<-release
			trap.Disarm()
			if o := <-done; o.err != nil {
				t.Error(o.err)
			}
		})
	}
	s.has(t, 2)
	// Others, small and not, have the rest meanwhile.
	for range 3 {
		s.echoes(t)
		if _, err := s.Do(t.Context(), Op{Name: "library", Key: "k"}, "GET", "k"); err != nil {
			t.Error(err)
		}
	}
	s.has(t, 2)
	close(release)
	all.Wait()
	if n := s.proxy.Connections(); n > 5 {
		t.Errorf("%d connections of a pool of 5", n)
	}
}

func TestAPoolOfOneHasNoDirectConnection(t *testing.T) {
	c := newCountedOf(t, later, 1)
	for range 3 {
		if _, err := c.Do(t.Context(), smallOp, "SET", "k", "v"); err != nil {
			t.Error(err)
		}
	}
	if n := c.directs.count; n != 0 {
		t.Errorf("%d direct connections", n)
	}
}

func TestADirectConnectionThatIsNotNeededGoesBackToThePool(t *testing.T) {
	s := newStraight(t, nil)
	trap, done := s.held(t, t.Context(), "ECHO", "held")
	s.echoes(t)
	trap.Disarm()
	<-done
	s.has(t, 2)
	pool := func() uint32 {
		t.Helper()
		stats, ok := s.Pool()
		if !ok || stats.TotalConns != 2 {
			t.Errorf("%+v, %v, want two connections", stats, ok)
		}
		return stats.IdleConns
	}
	if n := pool(); n != 2 {
		t.Errorf("%d idle connections", n)
	}
	s.directs.idle[0].used = time.Now().Add(-directIdle)
	s.directs.shrink()
	s.has(t, 1)
	if n := pool(); n != 2 {
		t.Errorf("%d idle connections", n)
	}
	// The library can use it.
	if reply, err := s.Do(t.Context(), Op{Name: "library", Key: "k"}, "ECHO", "a"); err != nil || reply != "a" {
		t.Error(reply, err)
	}
	if n := s.proxy.Connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// After a failover the refusal comes from a server that is not to be asked again.
func TestARefusalEndsADirectConnection(t *testing.T) {
	s := newStraight(t, nil)
	s.server.Must("REPLICAOF", "127.0.0.1", "1")
	if _, err := s.small(t.Context(), "SET", "k", "v"); !errors.Is(err, semantic.ErrUnavailable) {
		t.Error(err)
	}
	s.has(t, 0)
	s.server.Must("REPLICAOF", "NO", "ONE")
	s.echoes(t)
	s.has(t, 1)
}

func TestARefusalOfOneRequestEndsNoDirectConnection(t *testing.T) {
	s := newStraight(t, nil)
	s.server.Must("SET", "text", "v")
	s.server.Must("CONFIG", "SET", "maxmemory", "1")
	own := s.directs.idle[0]
	for range 3 {
		for want, args := range map[string][]any{"WRONGTYPE": {"LPOP", "text"}, "OOM": {"SET", "k", "v"}} {
			if _, err := s.small(t.Context(), args...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			s.echoes(t)
		}
	}
	s.has(t, 1)
	if s.directs.idle[0] != own {
		t.Error("it is another connection now")
	}
}

// However idle the service is: the library's own requests may need the place.
func TestDirectConnectionsGoBackWithoutARequest(t *testing.T) {
	library := newClient(Options{Mode: Standalone, Addresses: []string{"127.0.0.1:1"}, PoolSize: 4}, &switchboard{}).(*redis.Client)
	defer func() { _ = library.Close() }()
	synctest.Test(t, func(t *testing.T) {
		ds := directs{limit: 2, count: 2}
		for range 2 {
			ds.opened(library.Conn(), &socket{Conn: pipe(t), board: &switchboard{}})
		}
		<-time.After(directIdle * 3 / 4)
		d, _ := ds.take()
		ds.give(d, nil)
		<-time.After(directIdle)
		if n := ds.spare(); n != 1 || ds.count != 1 {
			t.Errorf("%d idle, %d in all, after one was not used for long", n, ds.count)
		}
		<-time.After(directIdle)
		if n := ds.spare(); n != 0 || ds.count != 0 || ds.sweep != nil {
			t.Errorf("%d idle, %d in all, sweep %v", n, ds.count, ds.sweep)
		}
	})
}

func pipe(t *testing.T) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near
}

func TestBytesAfterAReplyReachNobody(t *testing.T) {
	for _, first := range []string{"+one\r\n", "-NOSCRIPT gone\r\n"} {
		near, far := net.Pipe()
		s := &socket{Conn: near, board: &switchboard{timeout: later}}
		d := &direct{socket: s, in: bufio.NewReader(near)}
		go func() {
			_, _ = far.Read(make([]byte, 100))
			_, _ = far.Write([]byte(first + "+STRAY\r\n"))
		}()
		reply, sent, err := d.do(t.Context(), time.Now().Add(later), []any{"PING"})
		if !errors.Is(err, errProtocol) || !sent {
			t.Errorf("%q: %v, %v, %v", first, reply, sent, err)
		}
		_ = near.Close()
		_ = far.Close()
	}
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
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	defer func() { _ = far.Close() }()
	out := &gathered{Conn: far}
	server := tls.Server(out, &tls.Config{Certificates: web.TLS.Certificates})
	client := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "example.com"})
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

func TestCloseWaitsForTheSecondRequestOfAForgottenScript(t *testing.T) {
	s := newStraight(t, nil)
	script := NewScript("script", "return ARGV[1]")
	run := func() (any, error) { return s.Run(t.Context(), smallOp, script, []string{"k"}, "v") }
	if _, err := run(); err != nil {
		t.Fatal(err)
	}
	s.server.Must("SCRIPT", "FLUSH")
	trap := s.proxy.HoldNextReply(nil)
	done := make(chan outcome, 1)
	go func() {
		reply, err := run()
		done <- outcome{reply, err}
	}()
	<-trap.Hit()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	for { // until it refuses calls
		if _, err := s.small(t.Context(), "PING"); errors.Is(err, semantic.ErrClosed) {
			break
		}
	}
	trap.Disarm()
	if o := <-done; o.err != nil || o.reply != "v" {
		t.Error(o.reply, o.err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestADirectConnectionStaysWhereTheServerForgotTheScript(t *testing.T) {
	s := newStraight(t, nil)
	script := NewScript("script", "return ARGV[1]")
	run := func() {
		t.Helper()
		if reply, err := s.Run(t.Context(), smallOp, script, []string{"k"}, "v"); err != nil || reply != "v" {
			t.Error(reply, err)
		}
	}
	run()
	run()
	s.server.Must("SCRIPT", "FLUSH")
	run()
	s.has(t, 1)
	if n := s.proxy.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	if evals, shas := s.proxy.Commands("EVAL"), s.proxy.Commands("EVALSHA"); evals != 2 || shas != 2 {
		t.Errorf("%d EVAL, %d EVALSHA", evals, shas)
	}
}

func TestADirectConnectionThatCannotBeOpenedLeavesItsPlace(t *testing.T) {
	s := newStraight(t, nil)
	s.proxy.Refuse(true)
	s.proxy.Reset()
	for range 5 {
		if _, err := s.small(t.Context(), "SET", "k", "v"); !errors.Is(err, semantic.ErrUnavailable) {
			t.Error(err)
		}
		s.has(t, 0)
	}
	s.proxy.Refuse(false)
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		_, err := s.small(t.Context(), "SET", "k", "v")
		if err == nil {
			break
		}
		if time.Since(began) > later {
			t.Fatal(err)
		}
	}
	s.has(t, 1)
}

func TestWhatCannotBeWrittenWasNotSent(t *testing.T) {
	s := newStraight(t, nil)
	if _, err := s.small(t.Context(), "SET", 1.5); !errors.Is(err, semantic.ErrUnavailable) {
		t.Error(err)
	}
	s.echoes(t)
	s.proxy.ResetCounts()
	d, _ := s.directs.take()
	if err := d.socket.Close(); err != nil {
		t.Fatal(err)
	}
	_, sent, err := s.direct(t.Context(), d, []any{"SET", "k", "v"})
	if sent || err == nil {
		t.Errorf("sent: %v, %v", sent, err)
	}
	s.has(t, 0)
	if n := s.proxy.Commands(); n != 0 {
		t.Errorf("%d commands", n)
	}
}

func TestCloseEndsDirectConnections(t *testing.T) {
	s := newStraight(t, nil)
	trap, done := s.held(t, t.Context(), "ECHO", "held")
	s.echoes(t) // on a second one, idle now
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if o := <-done; !errors.Is(o.err, semantic.ErrUnknown) {
		t.Error(o.reply, o.err)
	}
	trap.Disarm()
	s.has(t, 0)
	if _, err := s.small(t.Context(), "ECHO", "a"); !errors.Is(err, semantic.ErrClosed) {
		t.Error(err)
	}
	for began := time.Now(); s.proxy.Connections() > 0; <-time.After(time.Millisecond) {
		if time.Since(began) > later/2 {
			t.Fatalf("%d connections after Close", s.proxy.Connections())
		}
	}
}

func TestCloseWaitsForADirectRequest(t *testing.T) {
	s := newStraight(t, nil)
	trap, done := s.held(t, t.Context(), "ECHO", "held")
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Errorf("closed before the reply: %v", err)
	case <-time.After(soon):
	}
	trap.Disarm()
	if o := <-done; o.err != nil || o.reply != "held" {
		t.Error(o.reply, o.err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	s.has(t, 0)
}

// encrypted is a server of TLS in front of another, which lives as long as the test, and
// what a client needs for it.
func encrypted(t *testing.T, target string) (address string, config *tls.Config, reset func()) {
	t.Helper()
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
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
	return listener.Addr().String(), &tls.Config{RootCAs: roots}, reset
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
