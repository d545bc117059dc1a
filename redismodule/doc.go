// Package redismodule implements the five Redis-backed contracts of package semantic:
// cache, rate limiter, distributed lock, resource lease and broadcast channel.
//
// It owns its connections and hands none of them out. The connection layer never
// resends a command that may have reached the wire, bounds every call by its context,
// and tells a call that provably applied nothing ([semantic.ErrUnavailable]) from one
// that may have been applied ([semantic.ErrUnknown]).
//
// Redis 7.0 or later is needed, standalone, behind Sentinel, or as a Cluster. Every
// write is a Lua script of its own file in the lua directory; all keys of one script
// share a Cluster hash tag. Keys are laid out as
//
//	<namespace>:<kind>:{<key>}…
//
// where kind is cache, limit, lock, lease or broadcast, and braces and percent signs
// in the caller's key are written as %7B, %7D and %25.
//
// With fx use package coordfx; without it use [Open].
package redismodule
