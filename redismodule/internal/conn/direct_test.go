package conn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	s.server.Must("ACL", "SETUSER", "default", "-type")
	own := s.directs.idle[0]
	for range 3 {
		for want, args := range map[string][]any{"WRONGTYPE": {"LPOP", "text"}, "OOM": {"SET", "k", "v"}, "NOPERM": {"TYPE", "k"}} {
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

// Whoever comes while the script is on its way again sends it too.
func TestOnlyThoseInFlightLearnThatTheServerForgotTheScript(t *testing.T) {
	s := newStraight(t, nil)
	script := NewScript("script", "return ARGV[1]")
	run := func() {
		if reply, err := s.Run(t.Context(), smallOp, script, []string{"k"}, "v"); err != nil || reply != "v" {
			t.Error(reply, err)
		}
	}
	run()
	s.server.Must("SCRIPT", "FLUSH")
	held := s.proxy.HoldNextReply(testkit.CommandContaining("return"))
	var first sync.WaitGroup
	first.Go(run)
	<-held.Hit()
	s.server.Must("SCRIPT", "FLUSH") // so that it would have to learn it
	run()
	held.Disarm()
	first.Wait()
	if n := s.proxy.ErrorReplies("NOSCRIPT"); n != 1 {
		t.Errorf("%d NOSCRIPT, want that of the first", n)
	}
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
