// Package boundary is the analyzer that keeps a service behind Coord's contracts: it
// reports every place where code could receive, hold, make or hand on a raw Redis
// client, by what its types say and not only by what it imports.
//
// The same analyzer comes in four forms: the command coordlint (which also is a vet
// tool), a plugin of golangci-lint (package gclplugin), a test helper and a check of an
// fx graph (package boundarytest).
//
// An exception is a comment with its reason, on the line, on the line above, in the doc
// comment of the declaration that it covers, or above the package clause for a file:
//
//	//coord:allow-raw the migration tool flushes the old keys
//
// Exceptions are counted, and one that excepts nothing is reported itself.
package boundary
