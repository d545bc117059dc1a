// Package operationstore is the Redis-backed operation coordinator: the contract of
// package operation over a connection of its own to one proven primary, behind a
// bounded gate.
//
// Each operation is one JSON record under the key that [operation.RecordKey] gives,
// the same as that of lazy-layers-cache/transactions. What that record has no room
// for, the number of the attempt and whether an earlier one abandoned, is kept beside
// it under <record key without ":record">:attempts, only from the second attempt on.
package operationstore
