package recipes

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// User is what is cached.
type User struct {
	ID, Name string
}

// Users reads users from a database, by way of the cache.
type Users struct {
	cache *semantic.Cache[User]
	load  func(ctx context.Context, id string) (User, error)
}

// NewUsers returns the users behind load.
func NewUsers(provider semantic.RemoteCacheProvider, load func(ctx context.Context, id string) (User, error)) (*Users, error) {
	cache, err := semantic.NewCache(provider, semantic.CacheConfig[User]{
		Prefix: "user:", TTL: 10 * time.Minute, Jitter: 0.1, AbsentTTL: time.Minute,
	})
	return &Users{cache, load}, err
}

// Get returns a user, or semantic.ErrAbsent.
func (u *Users) Get(ctx context.Context, id string) (User, error) {
	user, err := u.cache.GetOrFetch(ctx, id, func(ctx context.Context) (User, error) {
		user, err := u.load(ctx, id)
		if errors.Is(err, sql.ErrNoRows) {
			return user, semantic.ErrAbsent // cached for AbsentTTL
		}
		return user, err
	})
	if errors.Is(err, semantic.ErrUnavailable) {
		return u.load(ctx, id) // Redis is down: the source of truth, while it can take that
	}
	return user, err
}

// Renamed is called after the database has the new name.
func (u *Users) Renamed(ctx context.Context, id string) error { return u.cache.Delete(ctx, id) }
