package redismodule

import (
	"context"
	"fmt"
	"testing"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

type closableLimiter struct {
	semantic.RateLimiter
	services *Services
}

func (c closableLimiter) Close() { _ = c.services.Close(context.Background()) }

func pickLimiter(s *Services) semantic.RateLimiter { return closableLimiter{s.Limiter, s} }

func TestRateLimiterOnRealRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			b := onServer(Config{URL: server.URL(), Protocol: protocol, CommandTimeout: patient}, pickLimiter)
			b.Lacks = []testkit.Need{testkit.NeedStillClock}
			testkit.RunRateLimiter(t, b)
		})
	}
}

func TestRateLimiterOnEmbeddedRedis(t *testing.T) {
	server := testkit.StartEmbeddedRedis(t)
	b := onServer(Config{URL: server.URL(), CommandTimeout: patient}, pickLimiter)
	b.Lacks = []testkit.Need{testkit.NeedStillClock}
	testkit.RunRateLimiter(t, b)
}
