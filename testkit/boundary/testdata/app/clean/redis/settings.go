// Package redis is called so and has settings, no client: names are not what counts.
package redis

// Client is a customer.
type Client struct{ Name string }

// Cmdable is anything.
type Cmdable interface{ Get(key string) string }
