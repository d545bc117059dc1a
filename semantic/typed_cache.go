package semantic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Cache is a typed view of a [RemoteCacheProvider]: values of one kind under one
// prefix, encoded with a header that tells a value from a cached absence.
//
// Its outcomes are apart: [CacheHit], [CacheMiss], [CacheAbsent] (the source said that
// there is none, and that was cached), [CacheCorrupt] (what is stored cannot be decoded)
// and [CacheError]. Safe for concurrent use.
type Cache[T any] struct {
	provider RemoteCacheProvider
	observer CacheObserver // the provider, if it wants to know; else nil
	config   CacheConfig[T]
	counts   [5]atomic.Int64 // by outcome
}

// CacheConfig describes a [Cache]. Prefix and TTL are required.
type CacheConfig[T any] struct {
	// Prefix begins every key, for example "user:"; it and the key are at most
	// [MaxKeyBytes] together.
	Prefix string
	// TTL is how long a value is stored.
	TTL time.Duration
	// TTLFor, if not nil, decides the ttl of each value in place of TTL: a token that
	// says when it ends. A result that is not positive stores nothing.
	TTLFor func(value T) time.Duration
	// Jitter shortens each ttl at random by up to this part of it, 0 to 1, so that
	// values stored together do not end together. Nothing lives longer than asked.
	Jitter float64
	// AbsentTTL is how long it is cached that the source has no value; 0: not at all.
	// A cached absence counts as a value for Add, Replace and Touch: leave it at 0
	// where those are used, as for sessions.
	AbsentTTL time.Duration
	// ClusterGuard, if not 0, lets one process of the cluster load at a time; see
	// [WithClusterGuard].
	ClusterGuard time.Duration
	// ReloadCorrupt makes GetOrFetch delete a value that cannot be decoded and load it
	// again, once. Without it the error is returned until the value's ttl ends.
	ReloadCorrupt bool
	// Codec encodes the values; default [JSON].
	Codec Codec[T]
}

// ErrAbsent says that the source has no value for the key. A fetch returns it, or an
// error that wraps it, to have the absence cached; GetOrFetch returns it for one.
var ErrAbsent = errors.New("value is absent at its source")

// CacheOutcome is what a look into a [Cache] found.
type CacheOutcome int

const (
	// CacheError: the backend could not say.
	CacheError CacheOutcome = iota
	// CacheHit: there is a value.
	CacheHit
	// CacheMiss: nothing is stored.
	CacheMiss
	// CacheAbsent: it is stored that the source has no value.
	CacheAbsent
	// CacheCorrupt: what is stored cannot be decoded.
	CacheCorrupt
)

// String names the outcome as it appears in metrics.
func (o CacheOutcome) String() string {
	switch o {
	case CacheError:
		return "error"
	case CacheHit:
		return "hit"
	case CacheMiss:
		return "miss"
	case CacheAbsent:
		return "absent"
	case CacheCorrupt:
		return "corrupt"
	}
	return fmt.Sprintf("CacheOutcome(%d)", int(o))
}

// CacheObserver is a [RemoteCacheProvider] that is told what its typed views found, for
// its metrics: it sees the bytes, and only they can tell a value from a cached absence or
// from one that cannot be decoded.
type CacheObserver interface {
	// ObserveLookup is told of every look by Get and GetOrFetch. It must not block.
	ObserveLookup(ctx context.Context, outcome CacheOutcome)
}

// NewCache returns a typed view of provider. It does no I/O. A config that is out of
// range gives an [*ArgumentError].
func NewCache[T any](provider RemoteCacheProvider, config CacheConfig[T]) (*Cache[T], error) {
	const op = "cache.new"
	refuse := func(argument string, value any, allowed string) (*Cache[T], error) {
		return nil, &ArgumentError{Operation: op, Argument: argument, Value: value, Allowed: allowed}
	}
	if provider == nil {
		return refuse("provider", "nil", "a RemoteCacheProvider")
	}
	if err := ValidateName(op, "Prefix", config.Prefix); err != nil {
		return nil, err
	}
	if err := ValidateDuration(op, "TTL", config.TTL); err != nil {
		return nil, err
	}
	if !(config.Jitter >= 0 && config.Jitter <= 1) {
		return refuse("Jitter", config.Jitter, "0 to 1")
	}
	if config.AbsentTTL != 0 {
		if err := ValidateDuration(op, "AbsentTTL", config.AbsentTTL); err != nil {
			return nil, err
		}
	}
	if config.ClusterGuard != 0 {
		if err := ValidateDuration(op, "ClusterGuard", config.ClusterGuard); err != nil {
			return nil, err
		}
	}
	if config.Codec == nil {
		config.Codec = JSON[T]{}
	}
	observer, _ := provider.(CacheObserver)
	return &Cache[T]{provider: provider, observer: observer, config: config}, nil
}

// Get looks key up. err is nil for a hit, a miss and a cached absence; it matches
// [ErrCorrupt] for a value that cannot be decoded, and is the provider's otherwise. One
// round trip.
func (c *Cache[T]) Get(ctx context.Context, key string) (value T, outcome CacheOutcome, err error) {
	data, found, err := c.provider.Get(ctx, c.config.Prefix+key)
	switch {
	case err != nil:
		outcome = CacheError
	case !found:
		outcome = CacheMiss
	default:
		value, outcome, err = c.open(key, data)
	}
	c.count(ctx, outcome)
	return value, outcome, err
}

// GetOrFetch returns the value of key, and on a miss runs fetch and stores its result;
// see [RemoteCacheProvider] for who shares a fetch and what it may not overwrite. An
// absence, fresh or cached, is [ErrAbsent]. A stored value that cannot be decoded is
// [ErrCorrupt], unless ReloadCorrupt is set. One round trip on a hit, two on a miss.
func (c *Cache[T]) GetOrFetch(ctx context.Context, key string, fetch func(context.Context) (T, error)) (T, error) {
	value, outcome, err := c.getOrFetch(ctx, key, fetch)
	c.count(ctx, outcome)
	if outcome == CacheCorrupt && c.config.ReloadCorrupt {
		if err := c.Delete(ctx, key); err != nil {
			return value, err
		}
		value, outcome, err = c.getOrFetch(ctx, key, fetch)
		c.count(ctx, outcome)
	}
	return value, err
}

func (c *Cache[T]) getOrFetch(ctx context.Context, key string, fetch func(context.Context) (T, error)) (value T, outcome CacheOutcome, err error) {
	if fetch == nil {
		return value, CacheError, &ArgumentError{Operation: "cache.getOrFetch", Argument: "fetch", Value: "nil", Allowed: "a function"}
	}
	// Both are written on the loading goroutine and only by this call's own fetch.
	var ttl time.Duration
	var fetches atomic.Int32
	data, err := c.provider.GetOrFetch(ctx, c.config.Prefix+key, c.config.TTL, func(ctx context.Context) ([]byte, error) {
		fetches.Add(1)
		fetched, err := fetch(ctx)
		if errors.Is(err, ErrAbsent) {
			ttl = c.jittered(c.config.AbsentTTL)
			return []byte{headerAbsent}, nil
		}
		if err != nil {
			return nil, err
		}
		ttl = c.jittered(c.ttlOf(fetched))
		return c.seal(fetched)
	}, c.options(func([]byte) time.Duration { return ttl })...)
	if err != nil {
		return value, CacheError, err
	}
	value, outcome, err = c.open(key, data)
	if outcome == CacheAbsent {
		err = fmt.Errorf("cache %q: %w", c.config.Prefix+key, ErrAbsent)
	}
	if fetches.Load() > 0 && outcome != CacheCorrupt {
		outcome = CacheMiss
	}
	return value, outcome, err
}

func (c *Cache[T]) options(ttl func([]byte) time.Duration) []FetchOption {
	options := []FetchOption{WithValueTTL(ttl)}
	if c.config.ClusterGuard > 0 {
		options = append(options, WithClusterGuard(c.config.ClusterGuard))
	}
	return options
}

// Set stores value. One round trip; with a TTLFor that is not positive it deletes.
func (c *Cache[T]) Set(ctx context.Context, key string, value T) error {
	ttl := c.jittered(c.ttlOf(value))
	if ttl <= 0 {
		return c.Delete(ctx, key)
	}
	data, err := c.seal(value)
	if err != nil {
		return err
	}
	return c.provider.Set(ctx, c.config.Prefix+key, data, ttl)
}

// Delete removes keys; see [RemoteCacheProvider].
func (c *Cache[T]) Delete(ctx context.Context, keys ...string) error {
	full := make([]string, len(keys))
	for i, key := range keys {
		full[i] = c.config.Prefix + key
	}
	return c.provider.Delete(ctx, full...)
}

// Add stores value only if key has none, and tells whether it did. A TTLFor that is not
// positive is refused, here and by Replace. One round trip.
func (c *Cache[T]) Add(ctx context.Context, key string, value T) (added bool, err error) {
	return c.put(ctx, key, value, c.provider.Add)
}

// Replace stores value only if key has one, and tells whether it did: a save that never
// revives a deleted session. One round trip.
func (c *Cache[T]) Replace(ctx context.Context, key string, value T) (replaced bool, err error) {
	return c.put(ctx, key, value, c.provider.Replace)
}

func (c *Cache[T]) put(ctx context.Context, key string, value T, put func(context.Context, string, []byte, time.Duration) (bool, error)) (bool, error) {
	data, err := c.seal(value)
	if err != nil {
		return false, err
	}
	return put(ctx, c.config.Prefix+key, data, c.jittered(c.ttlOf(value)))
}

// Touch gives key a full TTL, without jitter, only if it exists, and tells whether it
// did. One round trip.
func (c *Cache[T]) Touch(ctx context.Context, key string) (touched bool, err error) {
	return c.provider.Touch(ctx, c.config.Prefix+key, c.config.TTL)
}

func (c *Cache[T]) count(ctx context.Context, outcome CacheOutcome) {
	c.counts[outcome].Add(1)
	if c.observer != nil {
		c.observer.ObserveLookup(ctx, outcome)
	}
}

// Count returns how many looks of this view, by Get and GetOrFetch, ended in outcome.
// A GetOrFetch that joined the fetch of another caller counts as a hit.
func (c *Cache[T]) Count(outcome CacheOutcome) int64 {
	if outcome < CacheError || outcome > CacheCorrupt {
		return 0
	}
	return c.counts[outcome].Load()
}

func (c *Cache[T]) ttlOf(value T) time.Duration {
	if c.config.TTLFor == nil {
		return c.config.TTL
	}
	return min(c.config.TTLFor(value), MaxTTL)
}

// jittered shortens ttl at random; what is positive stays at least [MinTTL].
func (c *Cache[T]) jittered(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return 0
	}
	cut := time.Duration(c.config.Jitter * rand.Float64() * float64(ttl))
	return max(ttl-cut, MinTTL)
}
