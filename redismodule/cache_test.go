package redismodule

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// patient is a command timeout that an embedded server's scripts keep under the race
// detector on a loaded machine.
const patient = 5 * time.Second

type closableCache struct {
	semantic.RemoteCacheProvider
	services *Services
}

func (c closableCache) Close() { _ = c.services.Close(context.Background()) }

func pickCache(s *Services) semantic.RemoteCacheProvider { return closableCache{s.Cache, s} }

func TestRemoteCacheProviderOnRealRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			testkit.RunRemoteCacheProvider(t, onServer(Config{URL: server.URL(), Protocol: protocol, CommandTimeout: patient}, pickCache))
		})
	}
}

func TestRemoteCacheProviderOnEmbeddedRedis(t *testing.T) {
	server := testkit.StartEmbeddedRedis(t)
	testkit.RunRemoteCacheProvider(t, onServer(Config{URL: server.URL(), CommandTimeout: patient}, pickCache))
}
