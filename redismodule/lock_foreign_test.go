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
