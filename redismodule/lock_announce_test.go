package redismodule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// announcements is how many messages were published on the server since the count began.
func announcements(server *testkit.RedisServer) int {
	stats, _ := server.Must("INFO", "commandstats").(string)
	_, publish, found := strings.Cut(stats, "cmdstat_publish:calls=")
	if !found {
		return 0
	}
	var n int
	_, _ = fmt.Sscanf(publish, "%d", &n)
	return n
}

// On a Cluster every node hears of every announcement, so that one for nobody is a cost
// for all of them.
func TestAReleaseIsAnnouncedOnlyWhenSomebodyWaits(t *testing.T) {
	server := testkit.StartRedis(t)
	s := openServices(t, 2, Config{URL: server.URL()}, nil)
	server.Must("CONFIG", "RESETSTAT")
	for range 5 {
		claim := mustHold(t, s[0].Lock, "k")
		if other, err := s[1].Lock.Acquire(t.Context(), "k", time.Minute); err != nil || other.Reason != semantic.ReasonContended {
			t.Fatalf("%+v, %v, want CONTENDED", other, err)
		}
		s[0].Lock.Release(t.Context(), "k", claim.Token)
	}
	if n := announcements(server); n != 0 {
		t.Errorf("%d announcements for nobody", n)
	}

	// The two hand it over by turns, often enough that polling would show.
	const handoffs = 10
	begin := time.Now()
	claim := mustHold(t, s[0].Lock, "k")
	for i := range handoffs {
		got := make(chan semantic.LockClaim)
		go func() {
			next, err := s[(i+1)%2].Lock.Acquire(t.Context(), "k", time.Minute, semantic.WithWait(30*time.Second))
			if err != nil {
				t.Errorf("waiting: %v", err)
			}
			got <- next
		}()
		eventually(t, "the waiter is marked and listens", func() bool {
			value, _ := server.Must("GET", "coord:lock:{k}").(string)
			heard, _ := server.Must("PUBSUB", "NUMSUB", "coord:lock:{k}:freed").([]any)
			return strings.HasPrefix(value, "0w ") && heard[1] == int64(1)
		})
		pause(t.Context(), 20*time.Millisecond) // it has asked once more
		s[i%2].Lock.Release(t.Context(), "k", claim.Token)
		if claim = <-got; !claim.Acquired {
			t.Fatalf("handoff %d: %+v", i, claim)
		}
	}
	s[handoffs%2].Lock.Release(t.Context(), "k", claim.Token)
	if n := announcements(server); n != handoffs {
		t.Errorf("%d announcements for %d handoffs", n, handoffs)
	}
	if took := time.Since(begin); took > handoffs*pollInterval*4/5 {
		t.Errorf("%d handoffs took %v: the waiters were not woken", handoffs, took)
	}
}

// TestAWaiterChangesNothingButItsMark: the holder's value, ttl, token and minimum hold are
// what they were, and a released lock in its minimum hold still wakes nobody early.
func TestAWaiterChangesNothingButItsMark(t *testing.T) {
	server := testkit.StartRedis(t)
	s := openServices(t, 2, Config{URL: server.URL()}, nil)
	claim, err := s[0].Lock.Acquire(t.Context(), "k", 20*time.Second, semantic.WithMinHold(500*time.Millisecond))
	if err != nil || !claim.Acquired {
		t.Fatalf("%+v, %v", claim, err)
	}
	before, _ := server.Must("GET", "coord:lock:{k}").(string)
	expires := server.Must("PEXPIRETIME", "coord:lock:{k}")
	taken := time.Now()
	got := make(chan semantic.LockClaim)
	go func() {
		next, err := s[1].Lock.Acquire(t.Context(), "k", time.Minute, semantic.WithWait(30*time.Second))
		if err != nil {
			t.Errorf("waiting: %v", err)
		}
		got <- next
	}()
	var marked string
	eventually(t, "the waiter is marked", func() bool {
		marked, _ = server.Must("GET", "coord:lock:{k}").(string)
		return marked != before
	})
	if want := strings.Replace(before, "500 ", "500w ", 1); marked != want {
		t.Errorf("the value is %q, want %q", marked, want)
	}
	if now := server.Must("PEXPIRETIME", "coord:lock:{k}"); now != expires {
		t.Errorf("expires at %v, want %v as before", now, expires)
	}
	s[0].Lock.Release(t.Context(), "k", claim.Token)
	next := <-got
	if !next.Acquired || next.Fence <= claim.Fence {
		t.Errorf("%+v after %+v", next, claim)
	}
	if held := time.Since(taken); held < 450*time.Millisecond {
		t.Errorf("handed over after %v, within the minimum hold", held)
	}
}
