// Package httplimit puts a [semantic.RateLimiter] in front of an http.Handler.
package httplimit
