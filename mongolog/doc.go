// Package mongolog keeps the [semantic.IdempotencyLog] in MongoDB.
//
// One document is one side effect, found by a unique index over organization_id,
// domain and idempotency_key. An acquire is one findAndModify: it inserts the
// document, takes the place of an attempt that the request may replace, or leaves it
// alone, and returns it; attempt_id says whose attempt it is. The server evaluates
// the condition and stamps the times with its own clock ($$NOW), so the result never
// depends on a local clock or on when expired documents are deleted: the TTL index
// over expires_at is garbage collection only.
//
// # Round trips
//
// TryAcquire takes one, whether the side effect is new or not; Finalize takes one,
// and a second to say why nothing was written. Writes wait for a majority, also one
// that changes nothing, so that an answer is never rolled back by a failover.
//
// # Lost replies
//
// A call whose reply is lost is sent again with the same attempt id and recognises
// what its first try wrote; how often is bounded by the context. The driver's own
// retryable writes are off: they work on replica sets only, try once, and hide which
// try failed. Where a context ends before the answer is known the error matches
// [semantic.ErrUnknown]. After a cut connection the driver looks at the server again
// no sooner than half a second later, so resolving takes about that long.
//
// # Servers with less
//
// Servers that speak the protocol without update pipelines (FerretDB 1, some managed
// services) are recognised at start. There an acquire reads the server's time from
// hello, inserts, and on a duplicate key reads and replaces the document only if it
// is still the one it read: two round trips for a new side effect, three for a
// duplicate, four for a retry or takeover. Exactly one caller wins if the server's
// findAndModify is atomic. FerretDB 1's is not, so there two takeovers of one record
// at the same instant may both win; acquires of new side effects cannot.
//
// # Documents
//
//	_id              names the document
//	organization_id  identity; unique together with the next two
//	domain
//	idempotency_key
//	status           PENDING, COMPLETED or FAILED
//	metadata         [{k, v}], so that any key can be kept
//	fingerprint      "" if none
//	attempt_id       names the attempt
//	attempt          1, 2, …
//	taken_over       whether it took the place of a PENDING one
//	attempted_at     when this attempt acquired
//	created_at       when the first attempt did
//	updated_at       when anything changed
//	expires_at       when it is forgotten
package mongolog
