package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// Config describes a [Middleware]. Limiter, Limit and Key are required.
type Config struct {
	Limiter semantic.RateLimiter
	Limit   semantic.Limit
	// Key names the budget that a request spends one token of: a tenant, an API key, an
	// address. limited is false for requests that are let through uncounted.
	Key func(r *http.Request) (key string, limited bool)
	// Denied answers a request above the limit, after the headers are set; default is
	// status 429 with a short text.
	Denied http.Handler
	// Failed answers a request that the limiter could not decide on; default is status
	// 503, or 400 for a key that is out of range. It must not call the limited handler
	// unless passing traffic unlimited during an outage is meant.
	Failed func(w http.ResponseWriter, r *http.Request, err error)
}

// Middleware returns a wrapper of handlers that lets a request pass if its budget has a
// token, and answers 429 Too Many Requests otherwise. It fails closed: without an answer
// from the limiter the request is refused.
//
// Every counted response carries RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset
// and RateLimit-Policy, and a refused one Retry-After: whole seconds, rounded up. Safe
// for concurrent use; it costs the limiter's one round trip at most. A config that is
// not complete gives an [*semantic.ArgumentError].
func Middleware(c Config) (func(http.Handler) http.Handler, error) {
	const op = "httplimit.middleware"
	missing := func(argument string) error {
		return &semantic.ArgumentError{Operation: op, Argument: argument, Value: "nil", Allowed: "a value"}
	}
	switch {
	case c.Limiter == nil:
		return nil, missing("Limiter")
	case c.Key == nil:
		return nil, missing("Key")
	}
	if err := semantic.ValidateTake(op, "key", 1, c.Limit); err != nil {
		return nil, err
	}
	if c.Denied == nil {
		c.Denied = http.HandlerFunc(denied)
	}
	if c.Failed == nil {
		c.Failed = failed
	}
	policy := fmt.Sprintf("%d;w=%d", c.Limit.Max, seconds(c.Limit.Window))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key, limited := c.Key(r)
			if !limited {
				next.ServeHTTP(w, r)
				return
			}
			d, err := c.Limiter.TryAcquire(r.Context(), key, 1, c.Limit)
			if err != nil {
				c.Failed(w, r, err)
				return
			}
			h := w.Header()
			h.Set("RateLimit-Policy", policy)
			h.Set("RateLimit-Limit", strconv.FormatInt(c.Limit.Max, 10))
			h.Set("RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
			h.Set("RateLimit-Reset", strconv.FormatInt(seconds(d.ResetAfter), 10))
			if !d.Allowed {
				h.Set("Retry-After", strconv.FormatInt(max(1, seconds(d.RetryAfter)), 10))
				c.Denied.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

// seconds rounds up, so that nobody comes back too early.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func denied(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
}

func failed(w http.ResponseWriter, _ *http.Request, err error) {
	switch {
	case errors.Is(err, context.Canceled): // the client has gone
	case errors.Is(err, semantic.ErrInvalidArgument):
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
	default:
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
	}
}
