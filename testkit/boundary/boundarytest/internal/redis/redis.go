// Package redis has types of the names of a raw client, for the tests of the graph check.
package redis

// Client stands in for a client.
type Client struct{}

// Cmdable stands in for a client's interface.
type Cmdable interface{ Get(key string) string }

// Get makes a Client a [Cmdable].
func (*Client) Get(string) string { return "" }

// NewClient makes a Client.
func NewClient() *Client { return &Client{} }
