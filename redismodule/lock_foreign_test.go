package redismodule

import (
	"errors"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// TestAForeignValueIsNoHolder: what something else wrote under a lock's key is an error
// for those who want the lock, waiting or not, and stays as it is.
func TestAForeignValueIsNoHolder(t *testing.T) {
	server := testkit.StartRedis(t)
	lock := openServices(t, 1, Config{URL: server.URL()}, newFaultNet())[0].Lock
	for name, command := range map[string][]string{
		"string": {"SET", "coord:lock:{string}", "mine"},
		"hash":   {"HSET", "coord:lock:{hash}", "f", "v"},
	} {
		args := make([]any, len(command))
		for i := range command {
			args[i] = command[i]
		}
		server.Must(args...)
		for _, opts := range [][]semantic.LockOption{nil, {semantic.WithWait(time.Minute)}} {
			claim, err := lock.Acquire(t.Context(), name, time.Minute, opts...)
			if claim.Acquired || claim.Reason != semantic.ReasonUnavailable || !errors.Is(err, semantic.ErrWrongType) {
				t.Errorf("%s: %+v, %v, want UNAVAILABLE and ErrWrongType", name, claim, err)
			}
		}
		lock.Release(t.Context(), name, "token")
		if n := server.Must("EXISTS", command[1]); n != int64(1) {
			t.Errorf("%s: the foreign value is gone", name)
		}
	}
}

// What something else wrote under the key of the last fence is an error where it can hold
// none; the lock is not taken then.
func TestAForeignValueForTheFenceTakesNoLock(t *testing.T) {
	server := testkit.StartRedis(t)
	lock := openServices(t, 1, Config{URL: server.URL()}, newFaultNet())[0].Lock
	server.Must("LPUSH", "coord:lock:{list}:fence", "x")
	for range 2 {
		claim, err := lock.Acquire(t.Context(), "list", time.Minute)
		if claim.Reason != semantic.ReasonUnavailable || !errors.Is(err, semantic.ErrWrongType) {
			t.Errorf("%+v, %v, want UNAVAILABLE and ErrWrongType", claim, err)
		}
	}
	if n := server.Must("EXISTS", "coord:lock:{list}"); n != int64(0) {
		t.Error("nobody holds the lock, and yet it is taken")
	}
	server.Must("SET", "coord:lock:{text}:fence", "x")
	if claim := mustHold(t, lock, "text"); claim.Fence < semantic.Fence(time.Now().Add(-time.Hour).UnixMicro()) {
		t.Errorf("fence %d", claim.Fence)
	}
}
