// Package semantic stands in for Coord's contracts.
package semantic

import "context"

type (
	RateLimiter interface {
		Allow(ctx context.Context, key string) (bool, error)
	}
	DistributedLock interface {
		TryAcquire(ctx context.Context, key string) (bool, error)
	}
	IdempotencyLog interface {
		TryAcquire(ctx context.Context, id string) bool
	}
)
