package observability

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of the cache.
const (
	CacheFetchPanicked Key = "redis.cache.fetch_panicked"
	CacheStoreFailed   Key = "redis.cache.store_failed"
)

func cacheSignals() []Signal {
	return []Signal{
		{
			Key: CacheFetchPanicked, Level: zapcore.ErrorLevel, Message: "cache loader panicked",
			Fields:  []Field{{"key", Text}, {"error", Failure}},
			Meaning: "A cache loader panicked; every waiter got an error.",
			Action:  "Fix the loader.",
			Alarm:   atLeast(1),
		},
		{
			Key: CacheStoreFailed, Level: zapcore.WarnLevel, Message: "loaded value could not be stored",
			Fields:  []Field{{"key", Text}, {"outcome", Text}, {"error", Failure}},
			Meaning: "A loaded value could not be stored; its callers got it all the same, and the next one loads again.",
			Action:  "Check the Redis server. Where error says that the load took too long, make the loader faster or load ahead of need.",
			Alarm:   atLeast(5),
		},
	}
}

// CacheFetchPanicked emits redis.cache.fetch_panicked.
func (s *Signals) CacheFetchPanicked(key string, err error) {
	s.emit(CacheFetchPanicked, zap.String("key", key), errField(err))
}

// CacheStoreFailed emits redis.cache.store_failed.
func (s *Signals) CacheStoreFailed(key, outcome string, err error) {
	s.emit(CacheStoreFailed, zap.String("key", key), zap.String("outcome", outcome), errField(err))
}
