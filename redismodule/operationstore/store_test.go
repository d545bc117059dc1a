package operationstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// suiteOn runs the conformance suite on the server at addr, whose data flush drops.
func suiteOn(t *testing.T, addr string, flush func(), advance func(time.Duration)) {
	proxy := testkit.StartProxy(t, addr)
	testkit.RunOperationCoordinator(t, testkit.Backend[operation.Coordinator]{
		New: func(t testkit.T, n int) []operation.Coordinator {
			flush()
			cs := make([]operation.Coordinator, n)
			for i := range cs {
				cs[i] = open(t, proxy.Addr(), lease(testkit.OperationLease), retention(testkit.OperationRetention))
			}
			return cs
		},
		Advance: advance,
		Fault:   proxy.Inject,
	})
}

func TestOperationCoordinatorOnRealRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	suiteOn(t, server.Addr(), func() { server.Must("FLUSHALL") }, time.Sleep)
}

func TestOperationCoordinatorOnEmbeddedRedis(t *testing.T) {
	clock := testkit.NewClock()
	server := testkit.StartEmbeddedRedis(t, testkit.WithClock(clock))
	suiteOn(t, server.Addr(), server.FlushAll, clock.Advance)
}

// 64 callers race for each of 1,000 operations, half of them for a fresh one and half
// for one whose lease has expired.
func TestOf64CallersExactlyOneAcquiresEachOf1000Operations(t *testing.T) {
	server := testkit.StartRedis(t)
	const callers, rounds, replicas = 64, 1000, 4
	cs := make([]*Opened, replicas)
	for i := range cs {
		cs[i] = open(t, server.Addr(), lease(time.Minute))
	}
	short := open(t, server.Addr(), lease(time.Millisecond), retention(time.Hour))
	var former [rounds]operation.Lease
	for i := range former {
		if i%2 == 1 {
			former[i] = begin(t, short, identity(fmt.Sprint("race-", i)), operation.BeginAcquired).Lease
		}
	}
	var won [rounds]atomic.Int32
	var present [rounds]operation.Lease
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range rounds {
				// Everyone at his own pace: the later ones meet a live lease.
				r, err := cs[caller%replicas].Begin(t.Context(), identity(fmt.Sprint("race-", i)))
				switch {
				case err != nil:
					t.Errorf("begin: %v", err)
					return
				case r.Outcome == operation.BeginAcquired:
					won[i].Add(1)
					present[i] = r.Lease
				case r.Outcome != operation.BeginInProgress:
					t.Errorf("begin: %+v", r)
				}
			}
		})
	}
	all.Wait()
	for i := range won {
		takeover := i%2 == 1
		if n := won[i].Load(); n != 1 || present[i].Takeover != takeover {
			t.Fatalf("operation %d: acquired by %d callers, takeover %v; want exactly 1, %v", i, n, present[i].Takeover, takeover)
		}
		if !takeover {
			continue
		}
		if r, err := cs[0].Renew(t.Context(), former[i]); err != nil || r.Outcome != operation.RenewLost {
			t.Fatalf("former owner's renew: %+v, %v", r, err)
		}
		complete(t, cs[1], former[i], "former", operation.CompleteLost)
		complete(t, cs[2], present[i], "present", operation.CompleteCompleted)
		complete(t, cs[3], former[i], "former", operation.CompleteConflict)
	}
}

// DBOS dbos-transact-py#544, dbos-transact-java#226: the same id started at once ran
// the body several times. Here the losers of a race learn that, and a conflicting start
// (dbos-transact-ts#725) changes nothing.
func TestAConflictingBeginAmongRacersChangesNothing(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr())
	id := identity("conflicting")
	l := begin(t, o, id, operation.BeginAcquired).Lease
	before := server.Must("GET", operation.RecordKey("coord", id))
	other := id
	other.DurableID = "another"
	begin(t, o, other, operation.BeginConflict)
	if after := server.Must("GET", operation.RecordKey("coord", id)); after != before {
		t.Fatalf("a conflict changed %v to %v", before, after)
	}
	complete(t, o, l, "ref", operation.CompleteCompleted)
}

// Anchored before the request, so that what the request itself took is not counted
// upon; redis' clock steps do not lengthen it.
func TestALeaseIsReliedOnForNoLongerThanItsTermFromBeforeTheRequest(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	o := open(t, proxy.Addr(), lease(10*time.Second))
	proxy.Delay(100 * time.Millisecond)
	before := time.Now()
	l := begin(t, o, identity("anchored"), operation.BeginAcquired).Lease
	after := time.Now()
	if l.ValidUntil.After(after.Add(10*time.Second-100*time.Millisecond)) || l.ValidUntil.Before(before.Add(9*time.Second)) || l.Term != 10*time.Second {
		t.Fatalf("valid for %v from before the request, %v from after it", l.ValidUntil.Sub(before), l.ValidUntil.Sub(after))
	}
}

func TestARestartedOrFlushedServerKnowsTheScriptAgain(t *testing.T) {
	server := testkit.StartRedis(t, testkit.WithPersistence())
	o := open(t, server.Addr())
	l := begin(t, o, identity("flushed"), operation.BeginAcquired).Lease
	server.Must("SCRIPT", "FLUSH")
	complete(t, o, l, "ref", operation.CompleteCompleted)
	server.Restart()
	if s := status(t, o, identity("flushed"), operation.StatusCompleted); s.ResultRef != "ref" {
		t.Fatalf("after the restart: %+v", s)
	}
}

// Every begin needs one round trip, and so does every other command.
func TestEveryCommandCostsOneRoundTrip(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	o := open(t, proxy.Addr())
	begin(t, o, identity("warm"), operation.BeginAcquired)
	proxy.ResetCounts()
	l := begin(t, o, identity("trips"), operation.BeginAcquired).Lease
	if _, err := o.Renew(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	status(t, o, l.Identity, operation.StatusInProgress)
	complete(t, o, l, "ref", operation.CompleteCompleted)
	if _, err := o.Abandon(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if n := proxy.Commands(); n != 5 {
		t.Fatalf("5 calls made %d round trips", n)
	}
}
