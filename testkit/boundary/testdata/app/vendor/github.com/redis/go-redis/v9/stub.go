// Package redis stands in for a Redis client: the signatures that the test data needs.
package redis

import "context"

type (
	Options   struct{ Addr string }
	Cmder     interface{ Name() string }
	StringCmd struct{}
	Client    struct{ cmdable }
	cmdable   struct{}
	Cmdable   interface {
		Get(ctx context.Context, key string) *StringCmd
	}
	UniversalClient interface {
		Cmdable
		Close() error
	}
)

const Nil = Error("redis: nil")

type Error string

func (e Error) Error() string { return string(e) }

func NewClient(*Options) *Client                               { return nil }
func (cmdable) Get(ctx context.Context, key string) *StringCmd { return nil }
func (*Client) Close() error                                   { return nil }
func (*StringCmd) Result() (string, error)                     { return "", nil }
