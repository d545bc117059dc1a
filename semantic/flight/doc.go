// Package flight is for implementations of the cache contract: it shares one piece of work between the concurrent callers of a key.
//
// It differs from golang.org/x/sync/singleflight in what it protects its callers from:
// the work does not run on the first caller's goroutine or context, so that this
// caller's cancel, or a panic or Goexit in the work, harms nobody; every caller obeys
// its own context; and work that nobody waits for any more is cancelled and never
// joined by a later caller.
package flight
