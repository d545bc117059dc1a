// Package cronfx is the cron-fanout runner: jobs that run on exactly one replica per
// tick, and jobs that turn a periodic scan into one queued message for each record.
//
// Every replica computes the same instants. At each one it claims (job, instant) with
// [semantic.DistributedLock]; the winner runs the job, the others record that they
// were gated. The claim is not released: it outlives the run by more than the late
// window and the largest clock skew, so a tick runs once however fast its handler is
// and however far the replicas' clocks are apart. A [semantic.ResourceLease] keeps
// the run of one tick from overlapping with that of the next, across the cluster.
// When the lock or the lease cannot say, the tick is skipped and recorded; it is never
// run ungated.
//
// # Ticks and time
//
// A schedule whose hour is a wildcard, and @every, follow absolute time: where a wall
// clock repeats an hour they work it twice. A schedule with given hours follows the
// wall clock of its zone: a time that the clock leaves out is worked once, at the
// first instant after the gap, and a time that it shows twice is worked the first time
// only. @every counts from 1 January 1970 UTC, so that all replicas agree.
//
// A replica never fires an older tick than its last one, whatever its clock does, and
// looks at its clock at least every 30 seconds, so that it notices a jump. A clock set
// back by more than a day is taken as the correction of a wrong one.
//
// # When not to use it
//
// A tick runs at most once by default: a replica that dies in it leaves it undone for
// the next tick to find (or see [CrashTakeOver]). Work that must be done exactly once
// for each record belongs behind the idempotency log, and work that must never run
// beside itself in a resource that checks a fence: a lease cannot stop a replica that
// is paused and resumes.
//
// # Not there
//
// Nothing remembers a tick but its key: one that passes while no replica lives for
// longer than the late window is lost, without a record. History is in memory, each
// replica's own. A job cannot be paused. A handler that ignores its context keeps its
// lease until it returns, whatever Timeout says. The record of an overlap names the
// holder only if that runs on the same replica; the lease's stored value names it for
// operators.
//
// # Keys
//
// Operators see these keys in the lock's and the lease's namespace:
//
//	cron-tick:<job>:<instant>               lock, one tick; the instant is RFC 3339 in UTC
//	cron-tick:<job>:<instant>:attempt-<n>   lock, take-over of a tick (n > 1)
//	cron-tick:<job>:manual:<instant>        lock, one manual run, by the second
//	cron-run:<job>                          lease, overlap guard
//	cron-attempt:<job>:<instant>            lease, proof of life under CrashTakeOver
//	cron-fanout:<job>:<organization>        lock, cooldown of TryEnqueueOrgJob
package cronfx
