// Package sqsfanout turns records into queued work over Amazon SQS FIFO queues, and
// handles it: [Producer] is [semantic.Fanout], and a [Host] runs [Consumer] definitions.
//
// # Messages
//
// A message's body is the record's body as it is. Its identity is in string attributes
// (coord.domain, coord.organization_id, coord.record_id, coord.version, coord.group), so
// any SQS tool can read it, and [Decode] reads it back. A body may hold only what SQS
// allows: valid UTF-8 without control characters other than tab, line feed and carriage
// return, and without U+FFFE and U+FFFF; up to 1 MiB with the attributes. A record that
// breaks this fails alone, with code INVALID.
//
// # At most once, at least once
//
// SQS drops a repeated [DeduplicationID] for five minutes, whatever became of the first
// message. Past that, and across redeliveries, the idempotency log in front of the
// handler recognises a record and version that was handled. Neither helps a handler that
// was cut off in the middle: see [Delivery].
//
// # The queue
//
// It must be FIFO and have a dead-letter queue after at least three receives; ten is a
// better number, because every receive counts, also that of a message that was released
// behind a failed one of its group or because a replica stopped. For more than 300
// requests per second set DeduplicationScope to messageGroup and FifoThroughputLimit to
// perMessageGroupId. All of this is read and checked at start.
//
// # When not to use it
//
// For one bounded piece of work on a tick, lock the handler instead. For order across
// thousands of records of one group, know the price: the producer sends a group's
// records one request at a time, and a failing record holds up those behind it.
package sqsfanout
