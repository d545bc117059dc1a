// Package semantic has Coord's contracts: what a service may ask of the rest of its
// cluster, and nothing of how it is done. It depends on the standard library alone.
//
// # Which primitive
//
// Ask in this order, and stop at the first yes.
//
//  1. Must a side effect not happen twice for one entity, however often it is asked
//     for (a webhook, a notification, a charge)? Use [IdempotencyLog].
//  2. Does a periodic scan find many records that each need work? Claim the tick with
//     [DistributedLock], send one message for each record with [Fanout], and handle
//     each behind [IdempotencyLog]. A cronfx.FanoutJob is just that.
//  3. Must a small piece of work run on one replica at a time, or once per tick? Use
//     [DistributedLock].
//  4. Does somebody own something for long, and need to know when giving it up whether
//     it was still theirs? Use [ResourceLease].
//  5. Does something have a budget per time that all replicas share? Use [RateLimiter].
//  6. Must every replica hear of something now? Use [BroadcastChannel].
//  7. Is something expensive to read, and may it be stale for a while? Use
//     [RemoteCacheProvider], typed as [Cache].
//
// If nothing fits, the answer is usually a real queue, a real database read, or two of
// the above together.
//
// # Quick reference
//
//	RemoteCacheProvider  Redis, key and TTL            use when: read often, written rarely, may be stale
//	                                                   don't use for: anything that staleness makes wrong
//	RateLimiter          Redis, counter and window     use when: a budget per key and window
//	                                                   don't use for: back-pressure (that is a queue), or limits per replica
//	DistributedLock      Redis, token and TTL          use when: small bounded work on one replica, a cron tick
//	                                                   don't use for: long ownership (ResourceLease), retries of one effect (IdempotencyLog), a lock around a fan-out
//	ResourceLease        Redis, holder and TTL         use when: long ownership whose end must be known truthfully
//	                                                   don't use for: effects that can be deduplicated where they happen (IdempotencyLog), short locks
//	BroadcastChannel     Redis publish and subscribe   use when: all replicas must hear, invalidation above all
//	                                                   don't use for: one receiver (a queue), state (a datastore), caches whose TTL is short enough
//	IdempotencyLog       MongoDB, unique index         use when: not twice for this organisation, domain and key
//	                                                   don't use for: ownership (ResourceLease), order or tight loops (DistributedLock)
//	Fanout               SQS FIFO, deduplication id    use when: a scan finds work for each record
//	                                                   don't use for: one bounded action (DistributedLock on the handler)
//
// # What every call may answer
//
// A remote call ends in one of three ways, and the contracts keep them apart. Known: a
// reply was read. Unavailable ([ErrUnavailable]): provably nothing was applied.
// Unknown ([ErrUnknown]): it may have been applied. Where an operation can recognise
// its own earlier try it resolves the unknown itself; everywhere else it fails closed
// and says so. Losing a lock, missing in a cache and running out of budget are known
// answers, not errors.
//
// # The boundary rule
//
// Code that needs Redis injects one of these contracts and never a Redis client. The
// services own error policy, signals and meaning; the client stays an implementation
// detail. The connections are private to their module twice over, and a test in every
// repository can prove that nothing crosses ("testing" in the documentation). In tests
// the doubles of package testkit take the services' place.
//
// # Composing
//
// Many an "exactly once" is two of these together. Data migrations at boot: a
// [DistributedLock] elects who walks the registry, so that replicas do not all try; a
// compare-and-set in the database with a lease on each migration's record makes it
// correct, also when the lock is lost half-way. Cron work has the same shape: the lock
// saves work, the check at the record makes it right. The rule: one layer for
// efficiency, one for correctness, and the second must hold without the first.
//
// # When a new primitive would be justified
//
// When a second consumer has made its shape obvious, and none of these can do it: the
// idempotency log (most "once" problems), a shorter TTL on a cached value (most
// coordination problems), deduplication at the queue (most fan-out problems). A
// contract is a long-term commitment of everybody who has to choose between them.
package semantic
