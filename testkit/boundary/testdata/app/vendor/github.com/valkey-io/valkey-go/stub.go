// Package valkey stands in for the client of that name.
package valkey

type Client interface{ Close() }
