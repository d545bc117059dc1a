package operationstore

import (
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// A step back shows more of a lease than was ever asked for. It is told as it is, and
// relied on for no longer than asked.
func TestAfterAStepBackTheLeaseIsReliedOnForItsTermOnly(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr(), lease(30*time.Second))
	stepped(t, o)
	id := identity("back")
	first := begin(t, o, id, operation.BeginAcquired).Lease
	server.Must("SET", "clock-step", -60)
	if r := begin(t, o, id, operation.BeginInProgress); r.Remaining < 80*time.Second || r.Remaining > 90*time.Second {
		t.Fatalf("remaining %v", r.Remaining)
	}
	again := begin(t, o, id, operation.BeginAcquired, operation.WithToken(first.Token)).Lease
	if left := time.Until(again.ValidUntil); left > 30*time.Second {
		t.Fatalf("relied on for %v", left)
	}
}

// The longest retention and a step back: the reference refuses every write until the
// clock has caught up.
func TestTheLongestRetentionSurvivesAStepBack(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr(), retention(operation.MaxRetention))
	stepped(t, o)
	l := begin(t, o, identity("longest"), operation.BeginAcquired).Lease
	server.Must("SET", "clock-step", -60)
	if r, err := o.Renew(t.Context(), l); err != nil || r.Outcome != operation.RenewRenewed {
		t.Fatalf("renew: %+v, %v", r, err)
	}
	complete(t, o, l, "ref", operation.CompleteCompleted)
	readAsReference(t, server, identity("longest"))
}

// The retention of a replica that keeps for less never shortens that of another.
func TestRetentionOnlyGrows(t *testing.T) {
	server := testkit.StartRedis(t)
	long := open(t, server.Addr(), retention(10*time.Hour))
	short := open(t, server.Addr(), retention(time.Hour))
	l := begin(t, long, identity("grows"), operation.BeginAcquired).Lease
	complete(t, short, l, "ref", operation.CompleteCompleted)
	if _, ttl := readAsReference(t, server, identity("grows")); ttl < 9*time.Hour {
		t.Fatalf("kept for %v", ttl)
	}
}

// Keys expire one by one: where the clock stepped forward and back, the record can be
// gone and the attempts beside it not. They are not believed of a later record, even one
// of the same token: its effects would go unseen.
func TestAttemptsThatOutlivedTheirRecordAreForgotten(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr())
	stepped(t, o)
	id := identity("outlived")
	l := begin(t, o, id, operation.BeginAcquired).Lease
	if r, err := o.Abandon(t.Context(), l); err != nil || r.Outcome != operation.AbandonAbandoned {
		t.Fatalf("abandon: %+v, %v", r, err)
	}
	server.Must("DEL", operation.RecordKey("coord", id))
	if l = begin(t, o, id, operation.BeginAcquired, operation.WithToken(l.Token)).Lease; l.Attempt != 1 || l.Takeover {
		t.Fatalf("a new record begins as %+v", l)
	}
	server.Must("SET", "clock-step", 60)
	if l = begin(t, o, id, operation.BeginAcquired).Lease; l.Attempt != 2 || !l.Takeover {
		t.Fatalf("after an attempt that neither completed nor abandoned: %+v", l)
	}
}
