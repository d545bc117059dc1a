package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/testkit/internal/process"
)

// RedisServer is a real redis-server run as a child process on 127.0.0.1, with its
// own directory and a port that stays its own until Stop, whether it runs or not.
// Safe for concurrent use, except that Kill, Restart and Stop are for one goroutine
// at a time.
type RedisServer struct {
	settings redisSettings
	dir      string
	ownDir   bool
	port     *process.Port
	busPort  *process.Port // the cluster bus; nil outside a cluster
	program  string
	fail     func(format string, args ...any)

	mu      sync.Mutex
	process *process.Process
}

// RedisOption changes how a redis-server is started.
type RedisOption func(*redisSettings)

type redisSettings struct {
	directives []string
	password   string
	persistent bool
	cluster    bool
	sentinel   bool
}

// WithRedisConfig adds a line of redis.conf, such as "maxmemory-policy", "noeviction".
func WithRedisConfig(directive, value string) RedisOption {
	return func(s *redisSettings) { s.directives = append(s.directives, directive+" "+value) }
}

// WithRedisPassword makes the server ask for a password; Command gives it.
func WithRedisPassword(password string) RedisOption {
	return func(s *redisSettings) { s.password = password }
}

// WithPersistence makes every write survive Kill and Restart. Without it the data
// ends with the process.
func WithPersistence() RedisOption { return func(s *redisSettings) { s.persistent = true } }

// StartRedis starts a redis-server that ends with the test. Without the program the
// test is skipped, and fails where CI=true. If the test fails, the end of the server's
// log is shown.
func StartRedis(t testing.TB, opts ...RedisOption) *RedisServer {
	t.Helper()
	RequireProgram(t, redisProgram, redisInstall)
	s, err := LaunchRedis(t.Context(), t.TempDir(), opts...)
	if err != nil {
		t.Fatalf("start redis-server: %v", err)
	}
	s.attach(t)
	return s
}

// attach stops the server with the test and reports its failures there.
func (s *RedisServer) attach(t testing.TB) {
	s.fail = func(format string, args ...any) { t.Helper(); t.Fatalf(format, args...) }
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of redis-server %s:\n%s", s.Addr(), s.logTail())
		}
		s.Stop()
	})
}

// LaunchRedis starts a redis-server without a test, for programs and benchmarks; the
// caller stops it. An empty dir means a temporary one. It returns when the server
// answers, or with an error that holds the end of its log.
func LaunchRedis(ctx context.Context, dir string, opts ...RedisOption) (*RedisServer, error) {
	s, err := newRedisServer(dir, opts)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// newRedisServer prepares a server and its ports without starting it.
func newRedisServer(dir string, opts []RedisOption) (s *RedisServer, err error) {
	s = &RedisServer{dir: dir, fail: func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }}
	for _, o := range opts {
		o(&s.settings)
	}
	if s.program, err = lookUp(redisProgram, redisInstall); err != nil {
		return nil, err
	}
	if s.port, err = process.ReservePort(); err != nil {
		return nil, err
	}
	if s.settings.cluster {
		if s.busPort, err = process.ReservePort(); err != nil {
			s.Stop()
			return nil, err
		}
	}
	if dir == "" {
		if s.dir, err = os.MkdirTemp("", "coord-redis-"); err != nil {
			s.Stop()
			return nil, fmt.Errorf("directory of redis-server: %w", err)
		}
		s.ownDir = true
	}
	return s, nil
}

// Addr returns host:port. It stays the same over Restart.
func (s *RedisServer) Addr() string { return s.port.Address() }

// URL returns redis://[:password@]host:port.
func (s *RedisServer) URL() string {
	if s.settings.password != "" {
		return "redis://:" + s.settings.password + "@" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Command sends one command over a connection of its own and returns the reply: nil,
// string, int64, bool or []any. An error reply is a *RedisError. Without a deadline
// in ctx it waits 10 s at most.
func (s *RedisServer) Command(ctx context.Context, args ...any) (any, error) {
	return redisCommand(ctx, s.Addr(), s.settings.password, args)
}

// Must is Command for set-up: a failure ends the test (or panics, outside one).
func (s *RedisServer) Must(args ...any) any {
	reply, err := s.Command(context.Background(), args...)
	if err != nil {
		s.fail("redis-server %s: %v: %v", s.Addr(), args, err)
	}
	return reply
}

// Kill ends the process at once, as a crash does (SIGKILL). Dials are refused until
// Restart.
func (s *RedisServer) Kill() {
	if p := s.running(); p != nil {
		p.Kill()
	}
}

// Pause stops the process where it stands (SIGSTOP): connections stay open, the
// system still accepts new ones, nothing answers. Restart and Stop work on it.
func (s *RedisServer) Pause() {
	if p := s.running(); p != nil {
		if err := p.Pause(); err != nil {
			s.fail("pause redis-server %s: %v", s.Addr(), err)
		}
	}
}

// Resume lets a paused process go on (SIGCONT). What it was sent meanwhile, it does now.
func (s *RedisServer) Resume() {
	if p := s.running(); p != nil {
		if err := p.Resume(); err != nil {
			s.fail("resume redis-server %s: %v", s.Addr(), err)
		}
	}
}

// Restart starts a killed server again on the same address, or kills a running one
// first. It comes back empty unless it was made [WithPersistence]. It returns when the
// server answers; a failure ends the test (or panics, outside one).
func (s *RedisServer) Restart() {
	s.Kill()
	if err := s.start(context.Background()); err != nil {
		s.fail("restart redis-server: %v", err)
	}
}

// Stop ends the process, gives its port back and removes its directory if that was
// made here. Stopping twice is fine.
func (s *RedisServer) Stop() {
	s.Kill()
	for _, p := range []*process.Port{s.port, s.busPort} {
		if p != nil {
			p.Release()
		}
	}
	if s.ownDir {
		_ = os.RemoveAll(s.dir) // a left-over temporary directory harms nobody
	}
}

func (s *RedisServer) running() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// start runs the program and waits until it answers.
func (s *RedisServer) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	args, err := s.configure(ctx)
	if err != nil {
		return err
	}
	p, err := process.Start(process.Spec{Path: s.program, Args: args, Dir: s.dir})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	err = poll(ctx, func() error {
		select {
		case <-p.Exited():
			return final(fmt.Errorf("redis-server ended: %w", errors.Join(p.Err(), errors.New(s.logTail()))))
		default:
		}
		_, err := s.Command(ctx, "PING")
		return err
	})
	if err != nil {
		p.Kill()
		return fmt.Errorf("redis-server %s does not answer: %w", s.Addr(), err)
	}
	return nil
}

// configure writes the configuration file, which sentinels and cluster nodes rewrite.
func (s *RedisServer) configure(ctx context.Context) (args []string, err error) {
	_, port, _ := net.SplitHostPort(s.Addr())
	lines := []string{
		"bind 127.0.0.1", "port " + port, "protected-mode no", "daemonize no",
		"dir " + quoted(s.dir), "logfile " + quoted(s.logFile()), "loglevel notice",
	}
	if !s.settings.sentinel {
		lines = append(lines, `save ""`, "databases 16", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1")
		major, err := programMajor(ctx, s.program)
		if err != nil {
			return nil, err
		}
		if major >= 7 { // before, DEBUG was always allowed
			lines = append(lines, "enable-debug-command local")
		}
		if s.settings.persistent {
			lines = append(lines, "appendonly yes", "appendfsync always")
		} else {
			lines = append(lines, "appendonly no")
		}
	}
	if s.settings.password != "" {
		lines = append(lines, "requirepass "+quoted(s.settings.password), "masterauth "+quoted(s.settings.password))
	}
	if s.settings.cluster {
		lines = append(lines, "cluster-enabled yes", "cluster-config-file nodes.conf",
			"cluster-node-timeout 2000", fmt.Sprintf("cluster-port %d", s.busPort.Number()))
	}
	lines = append(lines, s.settings.directives...)
	file := filepath.Join(s.dir, "redis.conf")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("configure redis-server: %w", err)
	}
	if s.settings.sentinel {
		return []string{file, "--sentinel"}, nil
	}
	return []string{file}, nil
}

func (s *RedisServer) logFile() string { return filepath.Join(s.dir, "redis.log") }

// logTail returns the last lines of the server's log.
func (s *RedisServer) logTail() string {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
