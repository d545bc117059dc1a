package redismodule

import (
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// The first try of a call may reach the server long after the second one was answered. It
// changes nothing then.
func TestALeaseVerbThatArrivesLateChangesNothing(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	late := openServices(t, 1, Config{URL: proxy.URL(), CommandTimeout: 200 * time.Millisecond}, nil)[0].Lease
	other := openServices(t, 1, Config{URL: server.URL()}, nil)[0].Lease
	claim := func(t *testing.T, l semantic.ResourceLease, key, holder string, want bool) {
		t.Helper()
		if held, err := l.Claim(t.Context(), key, holder, time.Minute); err != nil || held != want {
			t.Fatalf("claim of %s by %s: %t, %v", key, holder, held, err)
		}
	}
	claim(t, late, "warm", "a", true)
	late.Release(t.Context(), "warm", "a")
	for name, c := range map[string]struct {
		before, call, after func(t *testing.T, key string)
		held                int64
	}{
		"a claim, after the release": {
			before: func(*testing.T, string) {},
			call:   func(t *testing.T, key string) { claim(t, late, key, "a", true) },
			after:  func(t *testing.T, key string) { other.Release(t.Context(), key, "a") },
		},
		"a refreshing claim, after the release": {
			before: func(t *testing.T, key string) { claim(t, other, key, "a", true) },
			call:   func(t *testing.T, key string) { claim(t, late, key, "a", true) },
			after:  func(t *testing.T, key string) { other.Release(t.Context(), key, "a") },
		},
		"a refused claim, after the holder's release": {
			before: func(t *testing.T, key string) { claim(t, other, key, "b", true) },
			call:   func(t *testing.T, key string) { claim(t, late, key, "a", false) },
			after:  func(t *testing.T, key string) { other.Release(t.Context(), key, "b") },
		},
		"a take-over, after the release": {
			before: func(t *testing.T, key string) { claim(t, other, key, "b", true) },
			call: func(t *testing.T, key string) {
				if previous, err := late.TakeOver(t.Context(), key, "a", time.Minute); err != nil || previous != "b" {
					t.Errorf("%q, %v", previous, err)
				}
			},
			after: func(t *testing.T, key string) { other.Release(t.Context(), key, "a") },
		},
		"a release, after the next claim": {
			before: func(t *testing.T, key string) { claim(t, other, key, "a", true) },
			call: func(t *testing.T, key string) {
				if r := late.Release(t.Context(), key, "a"); !r.Removed {
					t.Errorf("%+v", r)
				}
			},
			after: func(t *testing.T, key string) { claim(t, other, key, "a", true) },
			held:  1,
		},
		"a release of nothing, after the next claim": {
			before: func(*testing.T, string) {},
			call: func(t *testing.T, key string) {
				if r := late.Release(t.Context(), key, "a"); r.Reason != semantic.ReasonNoHolder {
					t.Errorf("%+v", r)
				}
			},
			after: func(t *testing.T, key string) { claim(t, other, key, "a", true) },
			held:  1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := newToken()
			c.before(t, key)
			first := proxy.HoldNextRequest(testkit.CommandContaining("lease:{" + key + "}"))
			c.call(t, key)
			c.after(t, key)
			before := scriptCalls(t, server)
			first.Disarm()
			for range 1000 {
				if scriptCalls(t, server) > before {
					break
				}
				pause(t.Context(), 5*time.Millisecond)
			}
			if n := scriptCalls(t, server) - before; n != 1 {
				t.Fatalf("%d calls of scripts, want the late one", n)
			}
			if n := server.Must("EXISTS", "coord:lease:{"+key+"}"); n != c.held {
				t.Errorf("the lease is held: %d, want %d", n, c.held)
			}
		})
	}
}
