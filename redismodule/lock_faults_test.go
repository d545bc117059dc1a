package redismodule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// class is what a call's caller learns of its outcome.
type class string

const (
	known       class = "known"       // answered at the first try
	resolved    class = "resolved"    // answered after a try of unknown outcome
	unavailable class = "unavailable" // provably not applied
	unknown     class = "unknown"     // may have been applied, and said so
)

// faultRig is one redis-server behind a proxy, and the services behind that.
type faultRig struct {
	server   *testkit.RedisServer
	proxy    *testkit.Proxy
	services *Services // those of the cell: patient, or quick
	patient  *Services // wait longer than a busy machine needs
	quick    *Services // give up soon, where there will be no reply
	logs     *observer.ObservedLogs
}

// silent are the faults that only a timeout ends.
var silent = map[string]bool{"reply never comes": true, "link is a black hole": true, "server stopped": true}

// choose takes the services that fit a fault, with a connection at hand: without one
// every fault would be a failed dial.
func (r *faultRig) choose(t *testing.T, fault string) {
	t.Helper()
	r.services = r.patient
	if silent[fault] {
		r.services = r.quick
	}
	r.waitUntilWell(t)
}

func newFaultRig(t *testing.T) *faultRig {
	r := &faultRig{server: testkit.StartRedis(t, testkit.WithPersistence())}
	r.proxy = testkit.StartProxy(t, r.server.Addr())
	var core, logs = observer.New(zap.DebugLevel)
	r.logs = logs
	r.patient = r.open(t, 3*time.Second, observability.New(zap.New(testkit.RecordSignals(core))))
	r.quick = r.open(t, 250*time.Millisecond, observability.New(zap.New(testkit.RecordSignals(core))))
	r.services = r.patient
	return r
}

func (r *faultRig) open(t *testing.T, timeout time.Duration, signals *observability.Signals) *Services {
	t.Helper()
	s, err := Open(Config{URL: r.proxy.URL(), CommandTimeout: timeout, DialTimeout: timeout}, signals)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// fault makes something go wrong for the next call and returns what mends it, and tells
// whether a try met a fault that is set for a single one.
type fault struct {
	name string
	make func(t *testing.T, r *faultRig) (mend func() (met bool))
}

// operation is one verb: prepare brings the world into the state before it, call makes it.
type operation struct {
	name    string
	prepare func(t *testing.T, r *faultRig, key string) (token string)
	call    func(ctx context.Context, r *faultRig, key, token string) error
}

func operations() []operation {
	nothing := func(*testing.T, *faultRig, string) string { return "" }
	held := func(t *testing.T, r *faultRig, key string) string { return mustHold(t, r.patient.Lock, key).Token }
	leased := func(t *testing.T, r *faultRig, key string) string {
		if ok, err := r.patient.Lease.Claim(t.Context(), key, "me", time.Minute); !ok {
			t.Fatalf("claim: %v", err)
		}
		return ""
	}
	return []operation{
		{"lock.Acquire", nothing, func(ctx context.Context, r *faultRig, key, _ string) error {
			claim, err := r.services.Lock.Acquire(ctx, key, time.Minute)
			if err == nil && !claim.Acquired {
				return errors.New("a free lock was refused")
			}
			return err
		}},
		{"lock.WithLock", nothing, func(ctx context.Context, r *faultRig, key, _ string) error {
			ran, err := r.services.Lock.WithLock(ctx, key, time.Minute, func(context.Context) error { return nil })
			if err == nil && !ran {
				return errors.New("a free lock was refused")
			}
			return err
		}},
		{"lock.Release", held, func(ctx context.Context, r *faultRig, key, token string) error {
			r.logs.TakeAll()
			r.services.Lock.Release(ctx, key, token)
			for _, l := range r.logs.All() { // a release says it in its signal only
				switch l.ContextMap()["outcome"] {
				case string(semantic.OutcomeUnavailable):
					return semantic.ErrUnavailable
				case string(semantic.OutcomeUnknown):
					return semantic.ErrUnknown
				}
			}
			return nil
		}},
		{"lease.Claim", nothing, func(ctx context.Context, r *faultRig, key, _ string) error {
			ok, err := r.services.Lease.Claim(ctx, key, "me", time.Minute)
			if err == nil && !ok {
				return errors.New("a free lease was refused")
			}
			return err
		}},
		{"lease.TakeOver", leased, func(ctx context.Context, r *faultRig, key, _ string) error {
			previous, err := r.services.Lease.TakeOver(ctx, key, "you", time.Minute)
			if err == nil && previous != "me" {
				return fmt.Errorf("takeover names %q as the previous holder", previous)
			}
			return err
		}},
		{"lease.Release", leased, func(ctx context.Context, r *faultRig, key, _ string) error {
			res := r.services.Lease.Release(ctx, key, "me")
			if res.Err == nil && !res.Removed {
				return fmt.Errorf("release of one's own lease: %+v", res)
			}
			return res.Err
		}},
		{"lease.Hold", nothing, func(ctx context.Context, r *faultRig, key, _ string) error {
			held, err := r.services.Lease.Hold(ctx, key, "me", time.Minute, func(context.Context) error { return nil })
			if err == nil && !held {
				return errors.New("a free lease was refused")
			}
			return err
		}},
	}
}

func faults() []fault {
	type effect = func(*testing.T, *faultRig) func() bool
	trap := func(arm func(p *testkit.Proxy) *testkit.Trap) effect {
		return func(_ *testing.T, r *faultRig) func() bool {
			armed := arm(r.proxy)
			return func() bool {
				armed.Disarm()
				return armed.Sprung() > 0
			}
		}
	}
	state := func(make func(t *testing.T, r *faultRig) func()) effect {
		return func(t *testing.T, r *faultRig) func() bool {
			mend := make(t, r)
			return func() bool {
				mend()
				return false
			}
		}
	}
	config := func(directive, bad, good string) effect {
		return state(func(_ *testing.T, r *faultRig) func() {
			r.server.Must("CONFIG", "SET", directive, bad)
			return func() { r.server.Must("CONFIG", "SET", directive, good) }
		})
	}
	return []fault{
		{"none", state(func(*testing.T, *faultRig) func() { return func() {} })},
		{"request dropped", trap(func(p *testkit.Proxy) *testkit.Trap { return p.DropNextRequest(nil) })},
		{"reply dropped", trap(func(p *testkit.Proxy) *testkit.Trap { return p.DropNextReply(nil) })},
		{"reply cut in half", trap(func(p *testkit.Proxy) *testkit.Trap { return p.HalveNextReply(nil) })},
		{"reply never comes", trap(func(p *testkit.Proxy) *testkit.Trap { return p.MuteNextReply(nil) })},
		{"replies dropped", trap(func(p *testkit.Proxy) *testkit.Trap { return p.DropReplies(nil) })},
		{"link delays", state(func(_ *testing.T, r *faultRig) func() {
			r.proxy.Delay(50 * time.Millisecond)
			return func() { r.proxy.Delay(0) }
		})},
		{"link is a black hole", state(func(_ *testing.T, r *faultRig) func() {
			r.proxy.BlackHole(true)
			return func() { r.proxy.BlackHole(false) }
		})},
		{"connections reset", state(func(_ *testing.T, r *faultRig) func() {
			r.proxy.Reset()
			return func() {}
		})},
		{"dial refused", state(func(_ *testing.T, r *faultRig) func() {
			r.proxy.Refuse(true)
			r.proxy.Reset()
			return func() { r.proxy.Refuse(false) }
		})},
		{"server killed", state(func(t *testing.T, r *faultRig) func() {
			r.server.Kill()
			for range 1000 { // the client has seen it once the proxy has hung up
				if r.proxy.Connections() == 0 {
					break
				}
				pause(t.Context(), 5*time.Millisecond)
			}
			return r.server.Restart
		})},
		{"server stopped", state(func(_ *testing.T, r *faultRig) func() {
			r.server.Pause()
			return r.server.Resume
		})},
		{"clients paused", state(func(_ *testing.T, r *faultRig) func() {
			r.server.Must("CLIENT", "PAUSE", 100)
			return func() {}
		})},
		{"scripts flushed", state(func(_ *testing.T, r *faultRig) func() {
			r.server.Must("SCRIPT", "FLUSH")
			return func() {}
		})},
		{"READONLY", state(func(_ *testing.T, r *faultRig) func() {
			r.server.Must("REPLICAOF", "127.0.0.1", "1") // a replica of nobody keeps its data
			return func() { r.server.Must("REPLICAOF", "NO", "ONE") }
		})},
		{"OOM", config("maxmemory", "1", "0")},
		{"NOREPLICAS", config("min-replicas-to-write", "1", "0")},
		{"MISCONF", state(func(t *testing.T, r *faultRig) func() {
			return breakSnapshots(t, r.server)
		})},
		{"password changed", state(func(t *testing.T, r *faultRig) func() {
			admin := redis.NewClient(&redis.Options{Addr: r.server.Addr()})
			set := func(password string) {
				if err := admin.ConfigSet(t.Context(), "requirepass", password).Err(); err != nil {
					t.Error(err)
				}
			}
			set("another")
			r.proxy.Reset() // what is connected goes on without
			pause(t.Context(), 50*time.Millisecond)
			return func() {
				set("")
				_ = admin.Close()
			}
		})},
		{"LOADING", state(func(t *testing.T, r *faultRig) func() {
			r.proxy.Retarget(alwaysAnswers(t, "-LOADING Redis is loading the dataset in memory\r\n"))
			return func() { r.proxy.Retarget(r.server.Addr()) }
		})},
	}
}

// TestEveryFaultOfEveryVerb is the fault table: what the caller of each verb learns when
// each fault happens. A row lists the verbs that differ from its default.
func TestEveryFaultOfEveryVerb(t *testing.T) {
	expected := map[string]struct {
		all    class
		except map[string]class
	}{
		"none":                 {all: known},
		"request dropped":      {all: resolved},
		"reply dropped":        {all: resolved},
		"reply cut in half":    {all: resolved},
		"reply never comes":    {all: resolved},
		"replies dropped":      {all: unknown},
		"link delays":          {all: known},
		"link is a black hole": {all: unknown},
		"connections reset":    {all: known},
		"dial refused":         {all: unavailable},
		"server killed":        {all: unavailable},
		"server stopped":       {all: unknown},
		"clients paused":       {all: known},
		"scripts flushed":      {all: known},
		"READONLY":             {all: unavailable},
		// A release frees memory, so that it works where nothing else does; that of a
		// lease leaves a tombstone, which does not.
		"OOM":        {all: unavailable, except: map[string]class{"lock.Release": known}},
		"NOREPLICAS": {all: unavailable},
		"MISCONF":    {all: unavailable},
		"LOADING":    {all: unavailable},

		"password changed": {all: unavailable},
	}
	r := newFaultRig(t)
	for _, f := range faults() {
		row, ok := expected[f.name]
		if !ok {
			t.Fatalf("fault %q has no row in the table", f.name)
		}
		for _, o := range operations() {
			t.Run(f.name+"/"+o.name, func(t *testing.T) {
				want := row.all
				if c, ok := row.except[o.name]; ok {
					want = c
				}
				r.choose(t, f.name)
				key := newToken()
				token := o.prepare(t, r, key)
				mend := f.make(t, r)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				err := o.call(ctx, r, key, token)
				met := mend()
				got := known
				switch {
				case errors.Is(err, semantic.ErrUnavailable) && !errors.Is(err, semantic.ErrUnknown):
					got = unavailable
				case errors.Is(err, semantic.ErrUnknown):
					got = unknown
				case err != nil:
					t.Fatalf("%v", err)
				case met:
					got = resolved
				}
				if got != want {
					t.Errorf("%s, want %s (error %v)", got, want, err)
				}
				r.waitUntilWell(t)
			})
		}
	}
}

// waitUntilWell waits for compensations and for the server to answer writes again. It leaves
// an open connection to the requests that go straight and one to the others.
func (r *faultRig) waitUntilWell(t *testing.T) {
	t.Helper()
	r.services.Lock.compensations.Wait()
	var err error
	for range 500 {
		var claim semantic.LockClaim
		if claim, err = r.services.Lock.Acquire(t.Context(), newToken(), time.Second); claim.Acquired {
			if _, _, err = r.services.Cache.Get(t.Context(), newToken()); err == nil {
				return
			}
		}
		pause(t.Context(), 20*time.Millisecond)
	}
	t.Fatalf("the server does not recover: %v", err)
}

// breakSnapshots makes the server fail to save and so refuse writes.
func breakSnapshots(t *testing.T, s *testkit.RedisServer) (mend func()) {
	t.Helper()
	dir := s.Must("CONFIG", "GET", "dir").([]any)[1].(string)
	blocked := filepath.Join(dir, "dump.rdb", "in-the-way") // no file can be renamed over its folder
	if err := os.MkdirAll(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Must("CONFIG", "SET", "save", "3600 1")
	s.Must("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
	for range 500 {
		if _, err := s.Command(t.Context(), "SET", "probe", "1"); err != nil {
			break
		}
		_, _ = s.Command(t.Context(), "BGSAVE") // refused while one is under way
		pause(t.Context(), 10*time.Millisecond)
	}
	return func() { s.Must("CONFIG", "SET", "save", "") }
}

// alwaysAnswers is a server that gives the same answer to every command.
func alwaysAnswers(t *testing.T, answer string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				buf := make([]byte, 64<<10)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
					if _, err := c.Write([]byte(answer)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
