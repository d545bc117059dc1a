// Package kv is a library that nobody has on a list and that hides its client.
package kv

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Store hides a client.
type Store struct{ inner }

type inner struct{ client *redis.Client }

// Open makes a Store.
func Open() *Store { return nil }

// Command sends anything.
func (s *Store) Command(ctx context.Context, args ...string) (string, error) { return "", nil }

// Clock has no client.
type Clock struct{ offset int }
