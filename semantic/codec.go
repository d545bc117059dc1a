package semantic

import (
	"encoding/json"
	"fmt"
)

// Codec turns values into bytes and back. Safe for concurrent use.
type Codec[T any] interface {
	// Encode returns value as bytes, which may be empty.
	Encode(value T) ([]byte, error)
	// Decode returns the value that Encode made data from. It may keep data.
	Decode(data []byte) (T, error)
}

// JSON is the [Codec] of encoding/json.
type JSON[T any] struct{}

// Encode implements [Codec].
func (JSON[T]) Encode(value T) ([]byte, error) { return json.Marshal(value) }

// Decode implements [Codec].
func (JSON[T]) Decode(data []byte) (value T, err error) {
	err = json.Unmarshal(data, &value)
	return value, err
}

// The first byte of what a [Cache] stores. Neither begins a JSON text, so that a value
// which something else has put there is found corrupt and not half understood.
const (
	headerValue  = 0x01 // an encoded value follows
	headerAbsent = 0x02 // nothing follows: the source has no value
)

// seal puts the header before the encoded value.
func (c *Cache[T]) seal(value T) ([]byte, error) {
	data, err := c.config.Codec.Encode(value)
	if err != nil {
		return nil, fmt.Errorf("cache %q: encode: %w", c.config.Prefix, err)
	}
	return append([]byte{headerValue}, data...), nil
}

// open decodes what is stored: a hit, a cached absence or a corrupt value.
func (c *Cache[T]) open(key string, data []byte) (value T, outcome CacheOutcome, err error) {
	corrupt := func(cause any) (T, CacheOutcome, error) {
		var none T
		return none, CacheCorrupt, fmt.Errorf("cache %q: %w: %v", c.config.Prefix+key, ErrCorrupt, cause)
	}
	switch {
	case len(data) == 1 && data[0] == headerAbsent:
		return value, CacheAbsent, nil
	case len(data) == 0 || data[0] != headerValue:
		return corrupt("not written by a Cache of this release")
	}
	if value, err = c.config.Codec.Decode(data[1:]); err != nil {
		return corrupt(err)
	}
	return value, CacheHit, nil
}
