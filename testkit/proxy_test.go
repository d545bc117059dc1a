package testkit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/testkit"
)

// behindProxy returns a proxy before an embedded Redis, a client through it and one
// past it.
func behindProxy(t *testing.T) (p *testkit.Proxy, through, past *redis.Client) {
	t.Helper()
	e := testkit.StartEmbeddedRedis(t)
	p = testkit.StartProxy(t, e.Addr())
	return p, dial(t, p.Addr()), dial(t, e.Addr())
}

// within bounds a call that a fault may leave without an answer.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestProxyAimsFaultsAtCommands(t *testing.T) {
	const lost, silent, fine = "connection lost", "no answer", "answered"
	for _, c := range []struct {
		name    string
		arm     func(p *testkit.Proxy) *testkit.Trap
		sees    string // by the caller of INCR
		applied string // the counter after it
	}{
		{"a dropped request is not applied", func(p *testkit.Proxy) *testkit.Trap { return p.DropNextRequest(nil) }, lost, ""},
		{"a dropped reply is applied", func(p *testkit.Proxy) *testkit.Trap { return p.DropNextReply(nil) }, lost, "1"},
		{"a muted reply is applied", func(p *testkit.Proxy) *testkit.Trap { return p.MuteNextReply(nil) }, silent, "1"},
		{"a halved reply is applied", func(p *testkit.Proxy) *testkit.Trap { return p.HalveNextReply(nil) }, lost, "1"},
		{"a held request is not applied", func(p *testkit.Proxy) *testkit.Trap { return p.HoldNextRequest(nil) }, silent, ""},
		{"a held reply is applied", func(p *testkit.Proxy) *testkit.Trap { return p.HoldNextReply(nil) }, silent, "1"},
		{"every reply is dropped", func(p *testkit.Proxy) *testkit.Trap { return p.DropReplies(nil) }, lost, "1"},
		{"every request is dropped", func(p *testkit.Proxy) *testkit.Trap { return p.DropRequests(nil) }, lost, ""},
		{"a trap for the name catches", func(p *testkit.Proxy) *testkit.Trap {
			return p.DropNextReply(testkit.CommandNamed("incr"))
		}, lost, "1"},
		{"a trap for the key catches", func(p *testkit.Proxy) *testkit.Trap {
			return p.DropNextReply(testkit.CommandContaining("count"))
		}, lost, "1"},
		{"a trap for another command does not catch", func(p *testkit.Proxy) *testkit.Trap {
			return p.DropNextReply(testkit.CommandNamed("DECR"))
		}, fine, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, through, past := behindProxy(t)
			trap := c.arm(p)
			err := through.Incr(within(t, 300*time.Millisecond), "counter").Err()
			var timeout net.Error
			sees := lost
			switch {
			case err == nil:
				sees = fine
			case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
				sees = silent
			}
			if sees != c.sees {
				t.Errorf("the caller sees %q (%v), want %q", sees, err, c.sees)
			}
			if got := past.Get(t.Context(), "counter").Val(); got != c.applied {
				t.Errorf("counter = %q, want %q", got, c.applied)
			}
			caught := 1
			if c.sees == fine {
				caught = 0
			}
			if got := trap.Sprung(); got != caught {
				t.Errorf("trap caught %d commands, want %d", got, caught)
			}
			trap.Disarm()
			trap.Disarm()
			if err := through.Get(t.Context(), "other").Err(); !errors.Is(err, redis.Nil) {
				t.Errorf("after the fault: %v, want a plain answer", err)
			}
		})
	}
}

func TestProxyAppliesAHeldRequestLate(t *testing.T) {
	p, through, past := behindProxy(t)
	trap := p.HoldNextRequest(nil)
	done := make(chan error, 1)
	go func() { done <- through.Set(t.Context(), "k", "late", 0).Err() }()
	<-trap.Hit()
	past.Set(t.Context(), "k", "early", 0)
	trap.Disarm()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := past.Get(t.Context(), "k").Val(); got != "late" {
		t.Errorf("value = %q, want the held write after the other one", got)
	}
}

func TestProxyHarmsTheRightReplyOfAPipeline(t *testing.T) {
	p, _, past := behindProxy(t)
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p.HalveNextReply(testkit.CommandContaining("second"))
	const set = "*3\r\n$3\r\nSET\r\n$5\r\nfirst\r\n$1\r\n1\r\n" +
		"*3\r\n$3\r\nSET\r\n$6\r\nsecond\r\n$1\r\n2\r\n" +
		"*3\r\n$3\r\nSET\r\n$5\r\nthird\r\n$1\r\n3\r\n"
	if _, err := io.WriteString(c, set); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(c); string(got) != "+OK\r\n+OK" {
		t.Errorf("got %q, want one reply and half of another", got)
	}
	if got := past.MGet(t.Context(), "first", "second").Val(); got[0] != "1" || got[1] != "2" {
		t.Errorf("first and second = %v, want both applied", got)
	}
}

func TestProxyRefusesDialsAndComesBack(t *testing.T) {
	p, through, _ := behindProxy(t)
	ctx := t.Context()
	for range 3 {
		if err := through.Set(ctx, "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		p.Refuse(true)
		if err := through.Get(ctx, "k").Err(); err != nil {
			t.Errorf("an open connection was cut by Refuse: %v", err)
		}
		p.Reset()
		if err := through.Get(ctx, "k").Err(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial while refusing: %v, want connection refused", err)
		}
		p.Refuse(false)
	}
}

func TestProxyResetIsSeenAsReset(t *testing.T) {
	e := testkit.StartEmbeddedRedis(t)
	p := testkit.StartProxy(t, e.Addr())
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read after Reset: %v, want connection reset", err)
	}
	eventually(t, "the proxy forgets the connection", func() bool { return p.Connections() == 0 })
}

func TestProxyBlackHoleAppliesNothingEver(t *testing.T) {
	p, through, past := behindProxy(t)
	if err := through.Ping(t.Context()).Err(); err != nil { // opens a connection
		t.Fatal(err)
	}
	p.BlackHole(true)
	for i := range 2 { // the open connection, then a new one
		if err := through.Incr(within(t, 200*time.Millisecond), "k").Err(); err == nil {
			t.Fatalf("call %d through a black hole was answered", i)
		}
	}
	p.BlackHole(false)
	if got := through.Incr(t.Context(), "k").Val(); got != 1 {
		t.Errorf("counter = %d after the black hole, want 1: what it swallowed is not applied", got)
	}
	if got := past.Get(t.Context(), "k").Val(); got != "1" {
		t.Errorf("counter = %q", got)
	}
}

func TestProxyDelaysReplies(t *testing.T) {
	p, through, past := behindProxy(t)
	if err := through.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	const delay = 150 * time.Millisecond
	p.Delay(delay)
	begin := time.Now()
	if _, err := through.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for range 20 {
			pipe.Incr(t.Context(), "k")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < delay || took > 10*delay {
		t.Errorf("a pipeline of 20 took %v, want about one delay of %v", took, delay)
	}
	if got := past.Get(t.Context(), "k").Val(); got != "20" {
		t.Errorf("counter = %q", got)
	}
}

func TestProxyCountsRoundTripsAndRefusals(t *testing.T) {
	p := testkit.StartProxy(t, testkit.StartEmbeddedRedis(t).Addr())
	through := dial(t, p.Addr())
	ctx := t.Context()
	script := redis.NewScript("return 7")
	script.Run(ctx, through, []string{"k"})
	script.Run(ctx, through, []string{"k"})
	if got := p.ErrorReplies("NOSCRIPT"); got != 1 {
		t.Errorf("NOSCRIPT seen %d times, want 1", got)
	}
	if got := [3]int{p.Commands("evalsha"), p.Commands("EVAL"), p.Commands()}; got != [3]int{2, 1, 3} {
		t.Errorf("EVALSHA, EVAL, all = %v, want 2, 1, 3", got)
	}
	p.ResetCounts()
	if got := p.Commands() + p.ErrorReplies("NOSCRIPT"); got != 0 {
		t.Errorf("counts after reset: %d", got)
	}
}

func TestProxyCarriesSubscriptions(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		p := testkit.StartProxy(t, testkit.StartEmbeddedRedis(t).Addr())
		c := redis.NewClient(&redis.Options{Addr: p.Addr(), Protocol: protocol, MaxRetries: -1})
		defer c.Close()
		sub := c.Subscribe(t.Context(), "ch")
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if err := c.Publish(t.Context(), "ch", i).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			if _, err := sub.ReceiveMessage(t.Context()); err != nil {
				t.Fatalf("RESP%d: %v", protocol, err)
			}
		}
		p.BlackHole(true)
		if err := sub.Ping(t.Context()); err != nil {
			t.Fatalf("RESP%d: writing into a black hole: %v", protocol, err)
		}
		if m, err := sub.ReceiveTimeout(t.Context(), 100*time.Millisecond); err == nil {
			t.Errorf("RESP%d: a black hole let %v through", protocol, m)
		}
		p.BlackHole(false)
	}
}

func TestProxyUnreliableLosesAFractionAndNeverLies(t *testing.T) {
	p, through, past := behindProxy(t)
	p.Unreliable(testkit.Odds{
		Seed: 7, Match: testkit.CommandNamed("INCR"),
		DropRequest: 0.2, DropReply: 0.2, HalveReply: 0.1, MaxDelay: time.Millisecond,
	})
	const calls = 200
	answered := 0
	for range calls {
		if through.Incr(t.Context(), "k").Err() == nil {
			answered++
		}
	}
	p.Unreliable(testkit.Odds{})
	applied, err := past.Get(t.Context(), "k").Int()
	if err != nil {
		t.Fatal(err)
	}
	// By the dice of seed 7; that the replies come in order makes them reproducible.
	if answered < calls/4 || answered > 3*calls/4 {
		t.Errorf("%d of %d calls answered, want about half", answered, calls)
	}
	if applied <= answered || applied >= calls {
		t.Errorf("%d calls applied, %d answered of %d: want replies lost and requests lost", applied, answered, calls)
	}
	if err := through.Incr(t.Context(), "k").Err(); err != nil {
		t.Errorf("after the end of unreliability: %v", err)
	}
}

func TestProxyRetargetMovesClientsToAnotherServer(t *testing.T) {
	a, b := testkit.StartEmbeddedRedis(t), testkit.StartEmbeddedRedis(t)
	p := testkit.StartProxy(t, a.Addr())
	c := dial(t, p.Addr())
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	p.Retarget(b.Addr())
	if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET after Retarget: %v, want nothing there", err)
	}
}

func TestProxyFitsAConformanceBackend(t *testing.T) {
	p, through, past := behindProxy(t)
	for _, c := range []struct {
		fault   testkit.Fault
		applied bool
	}{
		{testkit.FaultDown, false}, {testkit.FaultHang, false},
		{testkit.FaultLoseReply, true}, {testkit.FaultLoseReplies, true},
	} {
		key := string(c.fault)
		through.Ping(t.Context())
		heal := p.Inject(nil, c.fault)
		if err := through.Set(within(t, 300*time.Millisecond), key, "v", 0).Err(); err == nil {
			t.Errorf("%s: the call was answered", c.fault)
		}
		heal()
		if applied := past.Exists(t.Context(), key).Val() == 1; applied != c.applied {
			t.Errorf("%s: applied = %v, want %v", c.fault, applied, c.applied)
		}
		if err := through.Ping(t.Context()).Err(); err != nil {
			t.Errorf("%s: after healing: %v", c.fault, err)
		}
	}
}

func TestTCPProxyHarmsAnyProtocol(t *testing.T) {
	calls := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- r.URL.Path
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	p := testkit.StartTCPProxy(t, strings.TrimPrefix(server.URL, "http://"))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	post := func(path, body string) (string, error) {
		r, err := http.NewRequestWithContext(within(t, 5*time.Second), http.MethodPost, "http://"+p.Addr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		return string(b), err
	}
	big := strings.Repeat("x", 1<<20)
	if got, err := post("/echo", big); err != nil || got != big {
		t.Fatalf("echo of 1 MiB: %d bytes, %v", len(got), err)
	}
	<-calls
	p.DropNextReply(testkit.CommandContaining("/aimed"))
	if got, err := post("/other", "a"); err != nil || got != "a" {
		t.Errorf("a request that is not aimed at: %q, %v", got, err)
	}
	<-calls
	if _, err := post("/aimed", "b"); err == nil {
		t.Error("a lost reply was received")
	}
	if got := <-calls; got != "/aimed" {
		t.Errorf("the server got %q, want the request whose reply is lost", got)
	}
	p.DropNextRequest(nil)
	if _, err := post("/dropped", "c"); err == nil {
		t.Error("a dropped request was answered")
	}
	if got, err := post("/after", "d"); err != nil || got != "d" {
		t.Errorf("after the faults: %q, %v", got, err)
	}
	if got := <-calls; got != "/after" {
		t.Errorf("the server got %q, want only what came after the dropped request", got)
	}
}

func TestProxyCloseEndsWhatItHolds(t *testing.T) {
	e := testkit.StartEmbeddedRedis(t)
	p, err := testkit.LaunchProxy(e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, p.Addr())
	trap := p.HoldNextRequest(nil)
	done := make(chan error, 1)
	go func() { done <- c.Set(t.Context(), "k", "v", 0).Err() }()
	<-trap.Hit()
	p.Close()
	p.Close()
	if err := <-done; err == nil {
		t.Error("a held request was answered by a closed proxy")
	}
	if keys := e.Keys(); len(keys) != 0 {
		t.Errorf("a held request was applied after Close: %v", keys)
	}
}
