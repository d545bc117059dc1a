package operationstore

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// documentedUser is the user of docs/operations.md as rules of ACL SETUSER, without one.
func documentedUser(t *testing.T, without string) (setUser []any, rules []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```acl\nuser (.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/operations.md has no ACL")
	}
	setUser = []any{"ACL", "SETUSER"}
	for _, rule := range strings.Fields(strings.ReplaceAll(string(block[1]), "PASSWORD", "secret")) {
		if strings.HasPrefix(rule, "+") || strings.HasPrefix(rule, "~") {
			rules = append(rules, rule)
		}
		if rule != without {
			setUser = append(setUser, rule)
		}
	}
	if without != "" && !slices.Contains(rules, without) {
		t.Fatalf("docs/operations.md does not give %s", without)
	}
	return setUser, rules
}

func asOperations(c *Config) {
	c.Redis.Username, c.Redis.Password = "operations", "secret"
}

// everyPath sends commands through every branch of the script and gives their errors.
func everyPath(t *testing.T, o *Opened, key string) map[string]error {
	t.Helper()
	ctx, errs := t.Context(), map[string]error{}
	keep := func(name string, err error) {
		if err != nil {
			errs[name] = err
		}
	}
	r, err := o.Begin(ctx, identity(key))
	keep("begin", err)
	l := r.Lease
	if err != nil {
		l = operation.Lease{Identity: identity(key), Token: operation.NewToken()}
	}
	_, err = o.Begin(ctx, identity(key))
	keep("begin of a live one", err)
	_, err = o.Renew(ctx, l)
	keep("renew", err)
	_, err = o.Abandon(ctx, l)
	keep("abandon", err)
	if r, err = o.Begin(ctx, identity(key)); err == nil {
		l = r.Lease
	}
	keep("takeover", err)
	_, err = o.Renew(ctx, l)
	keep("renew of a takeover", err)
	_, err = o.Complete(ctx, l, "ref")
	keep("complete", err)
	_, err = o.ReadStatus(ctx, identity(key))
	keep("readStatus", err)
	return errs
}

func TestTheDocumentedPermissionsAreEnough(t *testing.T) {
	server := testkit.StartRedis(t)
	setUser, _ := documentedUser(t, "")
	server.Must(setUser...)
	signals, logs := watched()
	o := openWith(t, signals, server.Addr(), asOperations)
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, err := range everyPath(t, o, "permitted") {
		t.Errorf("%s: %v", name, err)
	}
	if logs.Len() > 0 {
		t.Errorf("emitted %v", logs.All())
	}
	if log := server.Must("ACL", "LOG").([]any); len(log) > 0 {
		t.Errorf("the server refused %v", log)
	}
}

// What a deployment needs besides is documented too, and named when it is missing.
func TestDeploymentsNeedTheRightsThatAreDocumentedBesides(t *testing.T) {
	setUser, _ := documentedUser(t, "")
	cluster := testkit.StartRedisCluster(t)
	standalone := testkit.StartRedis(t)
	for _, c := range []struct {
		right   string
		servers []*testkit.RedisServer
		change  func(*Config)
	}{
		{"+cluster|slots", cluster.Nodes, func(c *Config) {
			c.Redis.Mode, c.Redis.Addresses, c.ClusterValidated = redismodule.Cluster, cluster.Addrs(), true
		}},
		{"+select", []*testkit.RedisServer{standalone}, func(c *Config) { c.Redis.DB = 3 }},
	} {
		for _, s := range c.servers {
			s.Must(setUser...)
		}
		err := open(t, standalone.Addr(), asOperations, c.change).Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "add "+c.right) {
			t.Errorf("start without %s: %v", c.right, err)
		}
		for _, s := range c.servers {
			s.Must("ACL", "SETUSER", "operations", c.right)
		}
		o := open(t, standalone.Addr(), asOperations, c.change)
		if err := o.Start(t.Context()); err != nil {
			t.Errorf("start with %s: %v", c.right, err)
		}
		for name, err := range everyPath(t, o, "besides"+c.right) {
			t.Errorf("with %s: %s: %v", c.right, name, err)
		}
	}
}

// Each right is needed, and Start says by name that it is missing. It writes nothing to
// find out.
func TestStartNamesThePermissionThatIsMissing(t *testing.T) {
	_, rules := documentedUser(t, "")
	if len(rules) < 10 {
		t.Fatalf("only %v are documented", rules)
	}
	for _, rule := range rules {
		t.Run(rule, func(t *testing.T) {
			server := testkit.StartRedis(t)
			setUser, _ := documentedUser(t, rule)
			server.Must(setUser...)
			signals, logs := watched()
			err := openWith(t, signals, server.Addr(), asOperations).Start(t.Context())
			if rule == "+info" { // not needed to coordinate, but to warn
				if n := emitted(logs, observability.OperationEvictable); err != nil || n != 1 {
					t.Fatalf("%v, said %d times that the policy is unseen", err, n)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "add "+rule) || strings.Contains(err.Error(), "not a proven primary") {
				t.Errorf("start: %v, want it to say: add %s", err, rule)
			}
			if n := server.Must("DBSIZE"); n != int64(0) {
				t.Errorf("the start wrote %v keys", n)
			}
		})
	}
}

// A right that is taken away while the coordinator runs: the script is stopped before its
// record is written, so that the command is rejected, not unknown.
func TestADenialWithinTheScriptIsRejectedAndChangesNoRecord(t *testing.T) {
	_, rules := documentedUser(t, "")
	for _, rule := range rules {
		if rule == "+role" || rule == "+info" || rule == "+client|setname" { // not of the script
			continue
		}
		t.Run(rule, func(t *testing.T) {
			server := testkit.StartRedis(t)
			setUser, _ := documentedUser(t, "")
			server.Must(setUser...)
			o := open(t, server.Addr(), asOperations, func(c *Config) { c.Lease = time.Minute })
			root := open(t, server.Addr())
			short := open(t, server.Addr(), lease(time.Millisecond), retention(time.Hour))
			begin(t, o, identity("warm"), operation.BeginAcquired) // the script is known
			live := begin(t, root, identity("live"), operation.BeginAcquired).Lease
			done := begin(t, root, identity("done"), operation.BeginAcquired).Lease
			complete(t, root, done, "ref", operation.CompleteCompleted)
			begin(t, short, identity("expired"), operation.BeginAcquired)
			until(t, func() bool { return status2(t, root, identity("expired")) == operation.StatusRecoveryRequired })
			if rule == "+eval" {
				server.Must("SCRIPT", "FLUSH")
			}
			if strings.HasPrefix(rule, "~") {
				server.Must("ACL", "SETUSER", "operations", "resetkeys")
			} else {
				server.Must("ACL", "SETUSER", "operations", "-"+rule[1:])
			}
			before := dumpRecords(server)
			denials := 0
			for name, call := range map[string]func() error{
				"begin":    func() error { _, err := o.Begin(t.Context(), identity("fresh")); return err },
				"takeover": func() error { _, err := o.Begin(t.Context(), identity("expired")); return err },
				"refused":  func() error { _, err := o.Begin(t.Context(), live.Identity); return err },
				"renew":    func() error { _, err := o.Renew(t.Context(), live); return err },
				"abandon":  func() error { _, err := o.Abandon(t.Context(), live); return err },
				"again":    func() error { _, err := o.Complete(t.Context(), done, "ref"); return err },
				"read":     func() error { _, err := o.ReadStatus(t.Context(), live.Identity); return err },
				"complete": func() error { _, err := o.Complete(t.Context(), live, "ref"); return err },
			} {
				err := call()
				if err == nil { // its way through the script does not need the right
					continue
				}
				denials++
				var rejected *operation.RejectedError
				if !errors.As(err, &rejected) || rejected.Code != "NOPERM" || class(err) != "rejected" || strings.Contains(err.Error(), "unknown") {
					t.Errorf("%s without %s: %v, want rejected with NOPERM", name, rule, err)
				}
			}
			if denials == 0 {
				t.Errorf("nothing needs %s", rule)
			}
			if after := dumpRecords(server); rule == "+set" && after != before {
				t.Errorf("a rejected write changed\n%s to\n%s", before, after)
			}
		})
	}
}

// dumpRecords is every record.
func dumpRecords(s *testkit.RedisServer) string {
	var b strings.Builder
	for _, key := range []string{"warm", "live", "done", "expired", "fresh"} {
		value, _ := s.Must("GET", operation.RecordKey("coord", identity(key))).(string)
		b.WriteString(key + " " + value + "\n")
	}
	return b.String()
}

// What a server says of a script is told apart from texts that only look like it.
func TestDenialsOfEveryServerAreRecognised(t *testing.T) {
	sha := strings.Repeat("0123456789", 4)
	for reply, want := range map[string]bool{
		"ERR The user executing the script can't run this command or subcommand script: " + sha + ", on @user_script:1.":                                        true,
		"The user executing the script can't access at least one of the keys mentioned in the command arguments":                                                true,
		"NOPERM ACL failure in script: User x has no permissions to run the 'set' command script: " + sha + ", on @user_script:1.":                              true,
		"ERR ACL failure in script: User x has no permissions to run the 'set' command script: " + sha:                                                          true,
		"ERR Error running script (call to f_" + sha + "): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand": true,
		"ERR Error running script (call to f_" + sha + "): @user_script:1: -NOPERM ACL failure in script: x":                                                    true,
		"ERR unknown command 'The user executing the script can't '":                                                                                            false,
		"ERR user_script:1: The user executing the script can't":                                                                                                false,
		"ERR something else": false,
		"":                   false,
	} {
		if got := denial.MatchString(reply); got != want {
			t.Errorf("%q: %v", reply, got)
		}
	}
}

// Whatever keeps a start from its proof, the error names the cause and the setting to look
// at, does not call it a proof that failed, and holds no secret.
func TestStartNamesTheCauseAndTheSetting(t *testing.T) {
	const secret = "hunter2-secret"
	locked := func(t *testing.T) *testkit.RedisServer {
		return testkit.StartRedis(t, testkit.WithRedisPassword(secret))
	}
	for _, c := range []struct {
		name  string
		wants []string
		open  func(t *testing.T) *Opened
	}{
		{"a wrong password", []string{"WRONGPASS", "Redis.Password"}, func(t *testing.T) *Opened {
			return open(t, locked(t).Addr(), func(c *Config) { c.Redis.Password = secret + "-wrong" })
		}},
		{"no password", []string{"NOAUTH", "Redis.Password"}, func(t *testing.T) *Opened { return open(t, locked(t).Addr()) }},
		{"an unknown user", []string{"WRONGPASS", "Redis.Username"}, func(t *testing.T) *Opened {
			return open(t, locked(t).Addr(), func(c *Config) { c.Redis.Username, c.Redis.Password = "nobody", secret })
		}},
		{"maxclients", []string{"maxclients", "PoolSize"}, func(t *testing.T) *Opened {
			server := testkit.StartRedis(t, testkit.WithRedisConfig("maxclients", "1"))
			busy := open(t, server.Addr(), func(c *Config) { c.Redis.PoolSize = 1 })
			begin(t, busy, identity("busy"), operation.BeginAcquired)
			return open(t, server.Addr())
		}},
		{"no such database", []string{"Redis.DB"}, func(t *testing.T) *Opened {
			server := testkit.StartRedis(t, testkit.WithRedisConfig("databases", "2"))
			return open(t, server.Addr(), func(c *Config) { c.Redis.DB = 9 })
		}},
		{"nobody there", []string{"Redis.Addresses"}, func(t *testing.T) *Opened { return open(t, "127.0.0.1:1") }},
		{"a silent server", []string{"in time", "Redis.Addresses"}, func(t *testing.T) *Opened {
			server := testkit.StartRedis(t)
			server.Pause()
			t.Cleanup(server.Resume)
			return open(t, server.Addr(), within(300*time.Millisecond))
		}},
		{"a standalone server as a cluster", []string{"Redis.Mode"}, func(t *testing.T) *Opened {
			return open(t, testkit.StartRedis(t).Addr(), func(c *Config) { c.Redis.Mode, c.ClusterValidated = redismodule.Cluster, true })
		}},
		{"no sentinels", []string{"entinel", "Redis.MasterName"}, func(t *testing.T) *Opened {
			return open(t, "127.0.0.1:1", func(c *Config) { c.Redis.Mode, c.Redis.MasterName = redismodule.Sentinel, "m" })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := c.open(t).Start(ctx)
			if err == nil || strings.Contains(err.Error(), "proven primary") || strings.Contains(err.Error(), secret) {
				t.Fatalf("start: %v", err)
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("start: %v; want %q in it", err, want)
				}
			}
			t.Log(err)
		})
	}
}
