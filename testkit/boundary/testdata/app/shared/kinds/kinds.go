//coord:allow-raw the cases name these types and spell no client

// Package kinds leads to a client in every way that a type has.
package kinds

import "github.com/redis/go-redis/v9"

type (
	Box[T any] struct{ value T }
	inner      struct{ Client *redis.Client }

	Argument struct{ Box Box[*redis.Client] }
	Pointer  struct{ Client *redis.Client }
	Slice    []redis.Client
	Array    [2]redis.Cmdable
	Key      map[redis.Cmdable]bool
	Element  map[string]redis.Cmdable
	Chan     chan *redis.Client
	Func     func(*redis.Client)
	Result   func() (int, redis.Cmdable)
	Embedded struct{ inner }
	Method   struct{}
	Commands interface {
		Get(key string) *redis.StringCmd
	}
	Union   interface{ *redis.Client | *redis.Options }
	Only    interface{ *redis.Client }
	Chained struct{ Next []func() map[string]Method }
	Cycle   struct {
		Next *Cycle
		Back *Other
	}
	Other struct {
		Cycle *Cycle
		Raw   redis.Cmdable
	}
	Alias = Chained

	// Quiet leads nowhere, though its parts do.
	Quiet struct {
		next   *Quiet
		client *redis.Client
	}
)

func (Method) Raw() *redis.Client   { return nil }
func (Quiet) Len() int              { return 0 }
func (Quiet) hidden() *redis.Client { return nil }
