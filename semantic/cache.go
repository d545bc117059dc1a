package semantic

import (
	"context"
	"errors"
	"time"
)

// RemoteCacheProvider is a key/value cache with a TTL, shared by all replicas, for
// data that is read often, written rarely and allowed to be stale for a while.
//
// It fails closed: when the backend is unavailable every method returns the error
// and no loader runs; the caller reads its source of truth. A miss, an error and a
// corrupt value are three different outcomes. For typed values use [Cache].
//
// Safe for concurrent use. Every method returns [ErrClosed] after close, and an
// error matching [ErrInvalidArgument], [ErrUnavailable], [ErrUnknown] (writes only)
// or [ErrWrongType].
type RemoteCacheProvider interface {
	// Get returns the value of key, and whether there is one. One round trip.
	Get(ctx context.Context, key string) (value []byte, found bool, err error)

	// Set stores value under key for ttl. A load of key that began before does not
	// store its value afterwards. One round trip.
	Set(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Delete removes keys. A load of one of them that began before does not store
	// its value afterwards. One round trip; on Redis Cluster one for each key, in
	// parallel, and then a failure may leave some of them deleted.
	Delete(ctx context.Context, keys ...string) error

	// GetOrFetch returns the value of key, and on a miss runs fetch and stores its
	// result for ttl. Any number of concurrent callers in one process share one
	// fetch; each obeys its own context, and the fetch goes on for the others when
	// one gives up. A panic in fetch becomes an error for every waiter, matching
	// [ErrFetchPanicked]. The error of fetch is returned as it is and nothing is
	// stored. Where only storing the value fails, the value is returned and the
	// failure is signalled: the caller has what it asked for. One round trip on a
	// hit, two on a miss.
	//
	// Callers of one process share a load only while nothing has changed in
	// between: one that comes after a Set or Delete by this process starts anew.
	// A fetch that takes longer than a minute returns its value but does not store it.
	GetOrFetch(ctx context.Context, key string, ttl time.Duration, fetch FetchFunc, opts ...FetchOption) ([]byte, error)

	// Add stores value only if key has none, and tells whether it did: the creation
	// of a session. One round trip.
	Add(ctx context.Context, key string, value []byte, ttl time.Duration) (added bool, err error)

	// Replace stores value only if key has one, and tells whether it did: a save
	// that never revives a deleted session. One round trip.
	Replace(ctx context.Context, key string, value []byte, ttl time.Duration) (replaced bool, err error)

	// Touch gives key a new ttl only if it exists, and tells whether it did. One
	// round trip.
	Touch(ctx context.Context, key string, ttl time.Duration) (touched bool, err error)
}

// ErrFetchPanicked marks the error of a [RemoteCacheProvider.GetOrFetch] whose fetch
// panicked or called runtime.Goexit.
var ErrFetchPanicked = errors.New("fetch did not return")

// FetchFunc loads a value from the source of truth. Its context carries the values
// of the first caller's but not its cancellation, and ends when no caller waits any more.
type FetchFunc func(ctx context.Context) ([]byte, error)

// FetchOptions are the resolved options of a GetOrFetch; see [ResolveFetchOptions].
type FetchOptions struct {
	ClusterGuard time.Duration // how long one process's load keeps the others waiting; 0: no guard
	// TTL, if not nil, decides the ttl of a loaded value; not positive: do not store.
	TTL func(value []byte) time.Duration
}

// FetchOption changes one GetOrFetch.
type FetchOption func(*FetchOptions)

// WithClusterGuard makes the load run in one process of the cluster at a time: the
// others wait for its value for up to d, after which one of them loads in its place.
func WithClusterGuard(d time.Duration) FetchOption {
	return func(o *FetchOptions) { o.ClusterGuard = d }
}

// WithValueTTL lets the loaded value decide how long it is stored, in place of the
// call's ttl: a token that says when it ends, an absence that is trusted for less
// time. A result that is not positive stores nothing; above [MaxTTL] counts as MaxTTL.
// ttl runs on the loading goroutine, after fetch and before its value is returned.
func WithValueTTL(ttl func(value []byte) time.Duration) FetchOption {
	return func(o *FetchOptions) { o.TTL = ttl }
}

// TTLOf returns the ttl to store a loaded value with, standard unless the options
// decide it; 0 means that it must not be stored. For implementations of
// [RemoteCacheProvider].
func (o FetchOptions) TTLOf(value []byte, standard time.Duration) time.Duration {
	if o.TTL == nil {
		return standard
	}
	return max(0, min(o.TTL(value), MaxTTL))
}

// ResolveFetchOptions applies opts and checks them; for implementations of
// [RemoteCacheProvider].
func ResolveFetchOptions(operation string, opts ...FetchOption) (FetchOptions, error) {
	var o FetchOptions
	if err := applyOptions(operation, &o, opts); err != nil {
		return o, err
	}
	if o.ClusterGuard != 0 {
		return o, ValidateDuration(operation, "clusterGuard", o.ClusterGuard)
	}
	return o, nil
}
