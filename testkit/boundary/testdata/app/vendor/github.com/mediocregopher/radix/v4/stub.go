// Package radix stands in for the client of that name.
package radix

type Client interface{ Close() error }
