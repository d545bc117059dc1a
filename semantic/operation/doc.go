// Package operation is the contract of the operation coordinator: who may work on one
// durable operation, such as a payment or an order, across every replica of a service.
//
// A coordinator says which attempt may work now. It caches no result, runs no
// callback and never decides whether a payment or an order succeeded: the database
// and the provider do. No lease authorizes a business write.
//
// The sequence to follow:
//
//  1. In a short database transaction find or create the durable operation, and claim
//     the resource under a constraint that does not depend on the request's
//     idempotency key, such as a unique seat.
//  2. [Coordinator.Begin]. When it is [BeginAcquired], read the durable operation again
//     and ask the provider with its stable [ProviderKey] before doing anything: an
//     earlier attempt may have got that far. Then do the work, under [Hold] when it
//     can outlast the lease.
//  3. In a second short transaction store the result together with its outbox record.
//  4. [Coordinator.Complete] with a reference to the stored result. Publish the outbox
//     record after the commit.
//
// When Complete or the publisher fails, the stored result stands: repair coordination
// and publish later, never run the provider again for a lost reply.
//
// Keys, records and digests are those of lazy-layers-cache/transactions, so services
// in TypeScript and in Go coordinate on the same operation.
package operation
