package main

import (
	"os"
	"syscall"
	"time"
)

// The points at which a sale can be made to die, in the order in which it comes by. Every
// try that gets so far comes by, whatever an earlier one has done already, so that a sale
// dies there as often as it is restarted.
const (
	pointStart      = "before-prepare"  // nothing has happened
	pointInPrepare  = "inside-prepare"  // within the first transaction, before its commit
	pointPrepared   = "after-prepare"   // the order and the seat are stored
	pointBegun      = "after-begin"     // the lease is taken
	pointReconciled = "after-reconcile" // order and provider were asked what is there
	pointChargeSent = "charge-unread"   // the provider has charged and says so, unread yet
	pointCharged    = "after-charge"    // the money is taken, nothing of it stored
	pointInFinish   = "inside-result"   // within the second transaction, before its commit
	pointFinished   = "after-result"    // result and outbox event are stored
	pointCompleted  = "after-complete"  // the coordinator knows, too, and nothing is published
	pointClaimed    = "after-claim"     // the event is claimed for publishing
	pointPublished  = "after-publish"   // the event is out, which is not stored
	pointMarked     = "before-answer"   // all is done and stored, but the buyer has no answer
)

func points() []string {
	return []string{
		pointStart, pointInPrepare, pointPrepared, pointBegun, pointReconciled, pointChargeSent, pointCharged,
		pointInFinish, pointFinished, pointCompleted, pointClaimed, pointPublished, pointMarked,
	}
}

const (
	// saleLease is short, so that the table need not wait long for a dead sale's lease.
	saleLease = 500 * time.Millisecond
	// publishLease is how long a claimed event is left to its publisher.
	publishLease = 300 * time.Millisecond
)

// dieAt returns the hook that ends this process at one point as a power cut would: no
// deferred function runs, no connection is closed in order.
func dieAt(fatal string) hook {
	return func(point string) {
		if point != fatal {
			return
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal has done its work
	}
}
