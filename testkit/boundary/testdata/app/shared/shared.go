// Package shared is the service's own helper that has a client, and is reported itself.
package shared

import (
	"github.com/redis/go-redis/v9" // want "import"
	"go.uber.org/fx"
)

var client = redis.NewClient(nil) // want "result-of-a-call"

// Get returns the client.
func Get() *redis.Client { return client } // want "result"

// Params are what constructors take.
type Params struct {
	fx.In

	Store Store // want "fx"
}

// Store has a client that everybody can see.
type Store struct {
	Client *redis.Client // want "field"
}

// Hidden has one that nobody can see.
type Hidden struct {
	client *redis.Client // want "field"
}

// Len uses it.
func (h *Hidden) Len() int { return 0 }
