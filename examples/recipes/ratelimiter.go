package recipes

import (
	"context"
	"net/http"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/httplimit"
)

// CallCRM keeps to the 100 requests a minute that the third party grants to all replicas
// together. It waits for its turn, as long as ctx lasts.
func CallCRM(ctx context.Context, limiter semantic.RateLimiter, call func(ctx context.Context) error) error {
	if err := limiter.Acquire(ctx, "crm", 1, semantic.PerMinute(100)); err != nil {
		return err // not admitted: ctx ended, or the limiter could not say
	}
	return call(ctx)
}

// TryCRM is for callers that would rather come back later than wait.
func TryCRM(ctx context.Context, limiter semantic.RateLimiter) (semantic.Decision, error) {
	return limiter.TryAcquire(ctx, "crm", 1, semantic.PerMinute(100))
}

// Limited gives each tenant 50 requests a second, without a burst at a window's edge.
func Limited(limiter semantic.RateLimiter, next http.Handler) (http.Handler, error) {
	wrap, err := httplimit.Middleware(httplimit.Config{
		Limiter: limiter, Limit: semantic.PerSecond(50).Smooth(),
		Key: func(r *http.Request) (string, bool) { return r.Header.Get("X-Tenant"), true },
	})
	if err != nil {
		return nil, err
	}
	return wrap(next), nil
}
