// Package redis_rate stands in for the library of that name.
package redis_rate

type Limiter struct{}
