package redismodule

import (
	"context"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// BenchmarkLockCycle is one acquire and one release of a free key; cancellable is with
// a context that can be cancelled, as a service's contexts are.
func BenchmarkLockCycle(b *testing.B) {
	server := testkit.StartRedis(b)
	s, err := Open(Config{URL: server.URL(), Protocol: 3}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	cycle := func(b *testing.B, ctx context.Context, opts ...semantic.LockOption) {
		b.ReportAllocs()
		for b.Loop() {
			claim, err := s.Lock.Acquire(ctx, "k", time.Minute, opts...)
			if err != nil || !claim.Acquired {
				b.Fatalf("%+v, %v", claim, err)
			}
			s.Lock.Release(ctx, "k", claim.Token)
		}
	}
	b.Run("background", func(b *testing.B) { cycle(b, context.Background()) })
	b.Run("cancellable", func(b *testing.B) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		cycle(b, ctx)
	})
	b.Run("unfenced", func(b *testing.B) { cycle(b, context.Background(), semantic.WithoutFence()) })
}
