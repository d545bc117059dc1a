package operationstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// fault is one row of the truth table: something goes wrong, and what every command
// that may write says then. A read says unavailable where they say unknown, and where
// their second try makes it known: it is not repeated.
type fault struct {
	name  string
	class string // unavailable, rejected, unknown, known or resolved by the second try
	code  string // of a rejection
	// make sets the fault up before each command and returns the coordinator to use
	// and the context.
	make func(t *testing.T, command string) (*Opened, context.Context)
}

// TestTheTruthTable injects every fault into every command. Never is a command that may
// have been applied called unavailable or rejected, and never one that provably was not
// called unknown.
func TestTheTruthTable(t *testing.T) {
	faults := append(replyFaults(), append(serverFaults(), append(linkFaults(), callerFaults()...)...)...)
	if len(faults) < 20 {
		t.Fatalf("only %d faults", len(faults))
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for _, command := range []string{"begin", "renew", "complete", "abandon", "readStatus"} {
				o, ctx := f.make(t, command)
				err := run(ctx, o, command, identity(command+"-"+f.name))
				want := f.class
				switch {
				case command == "readStatus" && (want == "unknown" || want == "resolved"):
					want = "unavailable"
				case want == "resolved":
					want = "known"
				}
				if class(err) != want {
					t.Errorf("%s: %s (%v), want %s", command, class(err), err, want)
				}
				var rejected *operation.RejectedError
				if want == "rejected" && (!errors.As(err, &rejected) || rejected.Code != f.code) {
					t.Errorf("%s: %v, want code %s", command, err, f.code)
				}
				var unknown *operation.UnknownError
				if want == "unknown" && (!errors.As(err, &unknown) || unknown.Token == "" || unknown.Command != command) {
					t.Errorf("%s: %+v does not tell its token and command", command, unknown)
				}
			}
		})
	}
}

func run(ctx context.Context, o *Opened, command string, id operation.Identity) (err error) {
	l := operation.Lease{Identity: id, Token: operation.NewToken()}
	switch command {
	case "begin":
		_, err = o.Begin(ctx, id)
	case "renew":
		_, err = o.Renew(ctx, l)
	case "complete":
		_, err = o.Complete(ctx, l, "ref")
	case "abandon":
		_, err = o.Abandon(ctx, l)
	default:
		_, err = o.ReadStatus(ctx, id)
	}
	return err
}

// within gives commands d: long where an answer comes, short where none ever does.
func within(d time.Duration) func(*Config) {
	return func(c *Config) { c.CommandDeadline, c.Redis.CommandTimeout = d, d }
}

const (
	patient = 20 * time.Second
	brisk   = time.Second
)

// replyFaults are answers of a server to the script, made up byte by byte.
func replyFaults() []fault {
	var faults []fault
	for _, r := range []struct{ name, reply, class, code string }{
		{"LOADING", "-LOADING Redis is loading the dataset in memory\r\n", "rejected", "LOADING"},
		{"MASTERDOWN", "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n", "rejected", "MASTERDOWN"},
		{"MISCONF", "-MISCONF Redis is configured to save RDB snapshots\r\n", "rejected", "MISCONF"},
		{"BUSY", "-BUSY Redis is busy running a script\r\n", "rejected", "BUSY"},
		{"CLUSTERDOWN", "-CLUSTERDOWN The cluster is down\r\n", "rejected", "CLUSTERDOWN"},
		{"MOVED", "-MOVED 1 127.0.0.1:1\r\n", "rejected", "MOVED"},
		{"TRYAGAIN", "-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "rejected", "TRYAGAIN"},
		{"READONLY within a script of Redis 6", "-ERR Error running script (call to f_0): @user_script:1: -READONLY You can't write against a read only replica.\r\n", "rejected", "READONLY"},
		// The reference calls this one a definite rejection because the text has TX_ in it.
		{"an error that names a TX_ word", "-ERR unknown command 'lltx_operation_v1'\r\n", "unknown", ""},
		{"a runtime error of the script", "-ERR user_script:1: Script attempted to access nonexistent global variable\r\n", "unknown", ""},
		{"a reply of another kind", "+OK\r\n", "unknown", ""},
		{"an empty reply", "$0\r\n\r\n", "unknown", ""},
		{"a number", ":1\r\n", "unknown", ""},
		{"a list", "*1\r\n$7\r\nmissing\r\n", "unknown", ""},
		{"an outcome nobody knows", "+else\r\n", "unknown", ""},
		{"an outcome with too few fields", "+acquired\r\n", "unknown", ""},
		{"somebody else's lease", "+acquired other 9 1 0\r\n", "unknown", ""},
		{"no number where one belongs", "+in_progress x\r\n", "unknown", ""},
		{"no reference where one belongs", "+completed \r\n", "unknown", ""},
		{"bytes that are no protocol", "!?\r\n", "unknown", ""},
		{"nil", "$-1\r\n", "unknown", ""},
	} {
		faults = append(faults, fault{name: r.name, class: r.class, code: r.code, make: func(t *testing.T, _ string) (*Opened, context.Context) {
			m := miniredis.RunT(t)
			m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
				if strings.EqualFold(cmd, "ROLE") {
					c.WriteRaw("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n")
					return true
				}
				if !strings.HasPrefix(strings.ToUpper(cmd), "EVAL") {
					return false
				}
				c.WriteRaw(r.reply)
				return true
			})
			return open(t, m.Addr(), within(patient)), t.Context()
		}})
	}
	return faults
}

// serverFaults are states of a real server.
func serverFaults() []fault {
	onServer := func(name, class, code string, prepare func(t *testing.T, s *testkit.RedisServer, id operation.Identity), opts ...testkit.RedisOption) fault {
		return fault{name: name, class: class, code: code, make: func(t *testing.T, command string) (*Opened, context.Context) {
			s := testkit.StartRedis(t, opts...)
			deadline := patient
			if class == "unknown" {
				deadline = brisk
			}
			o := open(t, s.Addr(), within(deadline))
			id := identity(command + "-" + name)
			if command != "begin" {
				// A write that would happen, so that the server gets to refuse it.
				l := operation.Lease{Identity: id, Token: operation.NewToken()}
				putReference(t, s, id, l.Token, "pending", time.Minute, "")
			}
			if len(opts) == 0 {
				begin(t, o, identity("warm"), operation.BeginAcquired) // connected already
			}
			prepare(t, s, id)
			return o, t.Context()
		}}
	}
	return []fault{
		onServer("WRONGTYPE", "rejected", "WRONGTYPE", func(_ *testing.T, s *testkit.RedisServer, id operation.Identity) {
			key := operation.RecordKey("coord", id)
			s.Must("DEL", key)
			s.Must("LPUSH", key, "x")
		}),
		onServer("a record that is none", "rejected", "INVALID_RECORD", func(_ *testing.T, s *testkit.RedisServer, id operation.Identity) {
			s.Must("SET", operation.RecordKey("coord", id), "{}")
		}),
		onServer("NOPERM", "rejected", "NOPERM", func(_ *testing.T, s *testkit.RedisServer, _ operation.Identity) {
			s.Must("ACL", "SETUSER", "default", "-eval", "-evalsha")
		}),
		onServer("a script flushed away", "known", "", func(_ *testing.T, s *testkit.RedisServer, _ operation.Identity) {
			s.Must("SCRIPT", "FLUSH")
		}),
		onServer("NOAUTH", "rejected", "NOAUTH", func(*testing.T, *testkit.RedisServer, operation.Identity) {}, testkit.WithRedisPassword("secret")),
		onServer("a killed server", "unavailable", "", func(_ *testing.T, s *testkit.RedisServer, _ operation.Identity) { s.Kill() }),
		onServer("a stopped server", "unknown", "", func(t *testing.T, s *testkit.RedisServer, _ operation.Identity) {
			s.Pause()
			t.Cleanup(s.Resume)
		}),
	}
}

// TestRefusedWritesAreRejected is the part of the table that only writes meet: READONLY,
// OOM and NOREPLICAS. Nothing is written, not even half of it.
func TestRefusedWritesAreRejected(t *testing.T) {
	for code, refuse := range map[string]func(s *testkit.RedisServer) (heal func()){
		"READONLY": func(s *testkit.RedisServer) func() {
			s.Must("REPLICAOF", "127.0.0.1", "1")
			return func() { s.Must("REPLICAOF", "NO", "ONE") }
		},
		"OOM": func(s *testkit.RedisServer) func() {
			s.Must("CONFIG", "SET", "maxmemory", "1")
			return func() { s.Must("CONFIG", "SET", "maxmemory", "0") }
		},
		"NOREPLICAS": func(s *testkit.RedisServer) func() {
			s.Must("CONFIG", "SET", "min-replicas-to-write", "1")
			return func() { s.Must("CONFIG", "SET", "min-replicas-to-write", "0") }
		},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s := testkit.StartRedis(t)
			o := open(t, s.Addr(), lease(time.Minute))
			short := open(t, s.Addr(), lease(time.Millisecond), retention(time.Hour))
			held := begin(t, o, identity("held"), operation.BeginAcquired).Lease
			expired := begin(t, short, identity("expired"), operation.BeginAcquired).Lease
			until(t, func() bool { return status2(t, o, expired.Identity) == operation.StatusRecoveryRequired })
			before := fmt.Sprint(dump(s))
			heal := refuse(s)
			for name, call := range map[string]func() error{
				"begin":    func() error { _, err := o.Begin(t.Context(), identity("fresh")); return err },
				"takeover": func() error { _, err := o.Begin(t.Context(), expired.Identity); return err },
				"renew":    func() error { _, err := o.Renew(t.Context(), held); return err },
				"complete": func() error { _, err := o.Complete(t.Context(), held, "ref"); return err },
				"abandon":  func() error { _, err := o.Abandon(t.Context(), held); return err },
			} {
				err := call()
				var rejected *operation.RejectedError
				if !errors.As(err, &rejected) || rejected.Code != code || class(err) != "rejected" {
					t.Errorf("%s: %v, want rejected with %s", name, err, code)
				}
			}
			heal()
			if after := fmt.Sprint(dump(s)); after != before {
				t.Errorf("a rejected write changed\n%s to\n%s", before, after)
			}
			complete(t, o, held, "ref", operation.CompleteCompleted)
		})
	}
}

func status2(t *testing.T, o *Opened, id operation.Identity) operation.StatusOutcome {
	t.Helper()
	s, err := o.ReadStatus(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s.Outcome
}

// dump is every key with its value.
func dump(s *testkit.RedisServer) any {
	return s.Must("EVAL", `local all = {} local keys = redis.call('KEYS', '*') table.sort(keys)
for i, k in ipairs(keys) do all[i] = k .. '=' .. redis.call('GET', k) end return all`, 0)
}

const silentLink = "a silent link"

// linkFaults are cuts between a coordinator that is connected and its server.
func linkFaults() []fault {
	onLink := func(name, class string, cut func(t *testing.T, p *testkit.Proxy)) fault {
		return fault{name: name, class: class, make: func(t *testing.T, _ string) (*Opened, context.Context) {
			p := testkit.StartProxy(t, testkit.StartRedis(t).Addr())
			deadline := patient
			if name == silentLink {
				deadline = brisk
			}
			o := open(t, p.Addr(), within(deadline))
			begin(t, o, identity("warm"), operation.BeginAcquired)
			cut(t, p)
			return o, t.Context()
		}}
	}
	return []fault{
		onLink("refused dials", "unavailable", func(_ *testing.T, p *testkit.Proxy) { p.Refuse(true); p.Reset() }),
		onLink("one cut before the request", "resolved", func(_ *testing.T, p *testkit.Proxy) { p.DropNextRequest(nil) }),
		onLink("cuts before each request", "unknown", func(_ *testing.T, p *testkit.Proxy) { p.DropRequests(nil) }),
		onLink("one lost reply", "resolved", func(_ *testing.T, p *testkit.Proxy) { p.DropNextReply(nil) }),
		onLink("each reply lost", "unknown", func(_ *testing.T, p *testkit.Proxy) { p.DropReplies(nil) }),
		onLink("one half reply", "resolved", func(_ *testing.T, p *testkit.Proxy) { p.HalveNextReply(nil) }),
		onLink("half replies", "unknown", func(_ *testing.T, p *testkit.Proxy) { p.HalveNextReply(nil); p.HalveNextReply(nil) }),
		onLink(silentLink, "unknown", func(t *testing.T, p *testkit.Proxy) {
			p.BlackHole(true)
			t.Cleanup(func() { p.BlackHole(false) })
		}),
		onLink("a lost reply, then refused dials", "unknown", func(_ *testing.T, p *testkit.Proxy) {
			trap := p.MuteNextReply(nil)
			go func() { <-trap.Hit(); p.Refuse(true); p.Reset() }() // in this order: no second try gets through
		}),
	}
}

// callerFaults are on the caller's side of the link.
func callerFaults() []fault {
	return []fault{
		{name: "a context that has ended", class: "unavailable", make: func(t *testing.T, _ string) (*Opened, context.Context) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return open(t, testkit.StartRedis(t).Addr()), ctx
		}},
		{name: "a context that ends during the dial", class: "unavailable", make: func(t *testing.T, _ string) (*Opened, context.Context) {
			ctx, cancel := context.WithCancel(t.Context())
			return open(t, "127.0.0.1:1", func(c *Config) {
				c.Redis.Dial = func(dial context.Context, _, _ string) (net.Conn, error) {
					cancel()
					<-dial.Done()
					return nil, dial.Err()
				}
			}), ctx
		}},
		{name: "a dial that times out", class: "unavailable", make: func(t *testing.T, _ string) (*Opened, context.Context) {
			return open(t, "127.0.0.1:1", within(patient), func(c *Config) {
				c.Redis.DialTimeout = 50 * time.Millisecond
				c.Redis.Dial = func(dial context.Context, _, _ string) (net.Conn, error) {
					<-dial.Done()
					return nil, dial.Err()
				}
			}), t.Context()
		}},
		{name: "a closed coordinator", class: "unavailable", make: func(t *testing.T, _ string) (*Opened, context.Context) {
			o := open(t, testkit.StartRedis(t).Addr())
			_ = o.Close(t.Context())
			return o, t.Context()
		}},
		{name: "no free connection", class: "unavailable", make: func(t *testing.T, _ string) (*Opened, context.Context) {
			p := testkit.StartProxy(t, testkit.StartRedis(t).Addr())
			o := open(t, p.Addr(), func(c *Config) {
				c.Redis.PoolSize, c.Redis.PoolTimeout, c.CommandDeadline = 1, 30*time.Millisecond, 2*time.Second
			})
			begin(t, o, identity("warm"), operation.BeginAcquired)
			occupy(t, p, o)
			return o, t.Context()
		}},
		{name: "no free slot", class: "unavailable", make: func(t *testing.T, _ string) (*Opened, context.Context) {
			p := testkit.StartProxy(t, testkit.StartRedis(t).Addr())
			o := open(t, p.Addr(), func(c *Config) { c.MaxActive, c.QueueDeadline = 1, 30*time.Millisecond })
			begin(t, o, identity("warm"), operation.BeginAcquired)
			occupy(t, p, o)
			return o, t.Context()
		}},
		{name: "a full queue", class: "unavailable", make: func(t *testing.T, _ string) (*Opened, context.Context) {
			p := testkit.StartProxy(t, testkit.StartRedis(t).Addr())
			o := open(t, p.Addr(), func(c *Config) {
				c.MaxActive, c.MaxQueued, c.QueueDeadline, c.CommandDeadline = 1, 1, time.Minute, time.Minute
			})
			begin(t, o, identity("warm"), operation.BeginAcquired)
			occupy(t, p, o)
			go func() { _, _ = o.Begin(t.Context(), identity("waiting")) }()
			until(t, func() bool { return o.Stats().Queued == 1 })
			return o, t.Context()
		}},
	}
}

// occupy keeps one request at the server until the test ends.
func occupy(t *testing.T, p *testkit.Proxy, o *Opened) {
	t.Helper()
	held := p.HoldNextReply(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = o.Begin(context.Background(), identity("occupying"))
	}()
	<-held.Hit()
	t.Cleanup(func() { held.Disarm(); <-done })
}
