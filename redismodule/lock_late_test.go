package redismodule

import (
	"context"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// A waiter whose first try was lost releases that try's token in the background, which
// must not be the one that it gets the lock with.
func TestAWaiterDoesNotReleaseWhatItGotAfterALostTry(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	other := openServices(t, 1, Config{URL: server.URL()}, nil)[0].Lock
	waiter := openServices(t, 1, Config{URL: proxy.URL()}, nil)[0].Lock
	held := mustHold(t, other, "k")
	lost := proxy.DropNextReply(testkit.CommandContaining("lock:{k}"))
	go func() {
		<-lost.Hit()
		pause(context.Background(), 40*time.Millisecond)
		other.Release(context.Background(), "k", held.Token)
	}()
	claim, err := waiter.Acquire(t.Context(), "k", time.Minute, semantic.WithWait(10*time.Second))
	if err != nil || !claim.Acquired {
		t.Fatalf("%+v, %v", claim, err)
	}
	if claim.Fence <= held.Fence {
		t.Errorf("fence %d after %d", claim.Fence, held.Fence)
	}
	waiter.compensations.Wait()
	if second, err := other.Acquire(t.Context(), "k", time.Minute); err != nil || second.Acquired {
		t.Errorf("%+v, %v, while the waiter holds it until %v", second, err, claim.ValidUntil)
	}
}

// The first try of an acquire may arrive when the second one has acquired the lock and it
// has been released again.
func TestATryThatArrivesAfterTheReleaseLeavesNoLock(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	lock := openServices(t, 1, Config{URL: proxy.URL(), CommandTimeout: 200 * time.Millisecond}, nil)[0].Lock
	lock.Release(t.Context(), "warm", mustHold(t, lock, "warm").Token)
	late := proxy.HoldNextRequest(testkit.CommandContaining("lock:{k}"))
	lock.Release(t.Context(), "k", mustHold(t, lock, "k").Token)
	late.Disarm()
	lock.compensations.Wait()
	if value := server.Must("GET", "coord:lock:{k}"); value != nil {
		t.Errorf("nobody holds the lock, and yet it is %v", value)
	}
	remembered := 0
	lock.late.Range(func(any, any) bool { remembered++; return true })
	if remembered != 0 {
		t.Errorf("%d tokens are remembered for ever", remembered)
	}
}

// The feed of releases may be silent where commands are answered. A wait still ends when
// it is to.
func TestASilentSubscriptionDoesNotProlongAWait(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	mustHold(t, openServices(t, 1, Config{URL: server.URL()}, nil)[0].Lock, "k")
	lock := openServices(t, 1, Config{URL: proxy.URL()}, nil)[0].Lock
	defer proxy.MuteNextReply(testkit.CommandNamed("SUBSCRIBE")).Disarm()
	began := time.Now()
	claim, err := lock.Acquire(t.Context(), "k", time.Minute, semantic.WithWait(50*time.Millisecond))
	if err != nil || claim.Reason != semantic.ReasonContended {
		t.Errorf("%+v, %v", claim, err)
	}
	if took := time.Since(began); took > pollInterval*4/5 {
		t.Errorf("a wait of 50 ms took %v", took)
	}
}
