// Package rueidis stands in for the client of that name.
package rueidis

type Client interface{ Close() }
