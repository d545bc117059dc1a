package testkit_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/wrkbelt/coord/testkit"
)

func TestARealServerAnswersCommands(t *testing.T) {
	s := testkit.StartRedis(t)
	if got := s.Must("SET", "k", 7); got != "OK" {
		t.Errorf("SET = %v, want OK", got)
	}
	if got := s.Must("INCR", "k"); got != int64(8) {
		t.Errorf("INCR = %v (%T), want 8", got, got)
	}
	if got := s.Must("GET", "absent"); got != nil {
		t.Errorf("GET of an absent key = %v, want nil", got)
	}
	_, err := s.Command(t.Context(), "NOSUCH")
	var refusal *testkit.RedisError
	if !errors.As(err, &refusal) {
		t.Errorf("unknown command: %v, want a RedisError", err)
	}
	if got := s.URL(); got != "redis://"+s.Addr() {
		t.Errorf("URL = %q", got)
	}
}

func TestAKilledServerRefusesAndComesBackEmptyOnItsPort(t *testing.T) {
	s := testkit.StartRedis(t)
	addr := s.Addr()
	s.Must("SET", "k", "v")
	s.Kill()
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
		t.Fatal("a killed server still accepts connections")
	}
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("address changed from %s to %s", addr, s.Addr())
	}
	if got := s.Must("GET", "k"); got != nil {
		t.Errorf("data survived a kill without persistence: %v", got)
	}
}

func TestAPersistentServerKeepsItsDataOverKills(t *testing.T) {
	s := testkit.StartRedis(t, testkit.WithPersistence())
	for range 3 {
		s.Must("INCR", "k")
		s.Restart()
	}
	if got := s.Must("GET", "k"); got != "3" {
		t.Errorf("GET after three kills = %v, want 3", got)
	}
}

func TestAPausedServerIsSilentUntilResumed(t *testing.T) {
	s := testkit.StartRedis(t)
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Command(ctx, "PING"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("PING of a paused server: %v, want a deadline", err)
	}
	s.Resume()
	if got := s.Must("PING"); got != "PONG" {
		t.Errorf("PING = %v", got)
	}
	s.Pause() // and is ended paused
}

func TestAServerTakesConfigurationAndPassword(t *testing.T) {
	s := testkit.StartRedis(t, testkit.WithRedisPassword("se cret"), testkit.WithRedisConfig("maxmemory", "20mb"))
	got := s.Must("CONFIG", "GET", "maxmemory")
	if list, ok := got.([]any); !ok || len(list) != 2 || list[1] != "20971520" {
		t.Errorf("CONFIG GET maxmemory = %v", got)
	}
	s.Must("DEBUG", "SLEEP", 0) // tests need it, and servers refuse it by default
}

func TestABadConfigurationIsReportedWithTheLog(t *testing.T) {
	testkit.StartRedis(t) // skips where there is no server
	_, err := testkit.LaunchRedis(t.Context(), "", testkit.WithRedisConfig("no-such-directive", "1"))
	if err == nil {
		t.Fatal("a server with an unknown directive started")
	}
}

func TestManyServersGetPortsOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 8 {
		s := testkit.StartRedis(t)
		if seen[s.Addr()] {
			t.Fatalf("address %s given twice", s.Addr())
		}
		seen[s.Addr()] = true
		s.Kill() // the port stays reserved
	}
}

func TestStoppingTwiceIsFine(t *testing.T) {
	s := testkit.StartRedis(t)
	s.Stop()
	s.Stop()
}
