package redismodule

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestALeaseSignalsItsHandoff(t *testing.T) {
	all, seen := broadcastServices(t, 1, Config{URL: testkit.StartEmbeddedRedis(t).URL()})
	lease := all[0].Lease
	if ok, err := lease.Claim(t.Context(), "k", "a", time.Minute); !ok {
		t.Fatalf("claim: %v", err)
	}
	if previous, err := lease.TakeOver(t.Context(), "k", "b", time.Minute); previous != "a" || err != nil {
		t.Fatalf("takeover from %q, %v, want a", previous, err)
	}
	if r := lease.Release(t.Context(), "k", "a"); r.Reason != semantic.ReasonReclaimed {
		t.Fatalf("release: %+v, want RECLAIMED", r)
	}
	told := signalled(seen, observability.LeaseReclaimDetected)
	if len(told) != 1 || told[0]["key"] != "k" || told[0]["holder"] != "a" || told[0]["reclaimed_by"] != "b" {
		t.Errorf("signals %v, want one that names both holders", told)
	}
}

func TestAHeldLeaseSignalsFailedRenewalsAndThenItsLossOnce(t *testing.T) {
	p := testkit.StartProxy(t, testkit.StartEmbeddedRedis(t).Addr())
	all, seen := broadcastServices(t, 1, Config{URL: p.URL(), CommandTimeout: 100 * time.Millisecond, DialTimeout: 100 * time.Millisecond})
	held, err := all[0].Lease.Hold(t.Context(), "k", "me", time.Second, func(ctx context.Context) error {
		p.Refuse(true)
		p.Reset()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !held || !errors.Is(err, semantic.ErrLeaseLost) {
		t.Fatalf("hold: %v, %v, want held and lost", held, err)
	}
	for _, f := range signalled(seen, observability.LeaseRenewFailed) {
		if f["key"] != "k" || f["holder"] != "me" || f["error"] == "" {
			t.Errorf("renewal: %v, want the key, the holder and the error", f)
		}
	}
	if n := len(signalled(seen, observability.LeaseRenewFailed)); n == 0 {
		t.Error("no failed renewal is signalled")
	}
	if lost := signalled(seen, observability.LeaseLost); len(lost) != 1 || lost[0]["key"] != "k" || lost[0]["holder"] != "me" {
		t.Errorf("losses %v, want one of the key and its holder", lost)
	}
}
