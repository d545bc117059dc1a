// Package observability is the catalog of everything that Coord says: each
// structured-log key with its level, its fields, what it means, and either the alarm
// that watches it or the reason why none does.
//
// Signals are emitted only through the typed methods of [Signals], so that a key
// cannot be misspelt and a field cannot be forgotten. The flat JSON field "event"
// carries the key; metric filters match on it and on nothing else.
//
// The alarms, the dashboard and the runbook are generated from the catalog.
package observability

//go:generate go run ./internal/render/generate
