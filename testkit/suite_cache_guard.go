package testkit

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

func cacheGuardCases() []cacheCase {
	type backend = Backend[semantic.RemoteCacheProvider]
	return []cacheCase{
		{Name: "with a guard one load runs in the cluster and all get its value", Run: func(t T, b backend) {
			const replicas = 5
			cs := b.New(t, replicas)
			guard := semantic.WithClusterGuard(longTTL)
			var fetches atomic.Int32
			started, release := make(chan struct{}), make(chan struct{})
			results := make(chan fetched, replicas)
			fetch := func(context.Context) ([]byte, error) {
				if fetches.Add(1) == 1 {
					close(started)
				}
				<-release
				return []byte("v"), nil
			}
			for _, c := range cs {
				go func() {
					value, err := c.GetOrFetch(t.Context(), "k", longTTL, fetch, guard)
					results <- fetched{value, err}
				}()
			}
			receive(t, started, "a load to start")
			waitUntilAsked(b)
			b.Advance(span)
			close(release)
			for range replicas {
				if !passes(b, results, longTTL/2, func(f fetched) {
					if string(f.value) != "v" || f.err != nil {
						t.Errorf("GetOrFetch: %q, %v, want the value of the one load", f.value, f.err)
					}
				}) {
					t.Fatalf("a replica still waits for a load that has ended")
				}
			}
			if fetches.Load() != 1 {
				t.Errorf("%d loads in the cluster, want 1", fetches.Load())
			}
		}},
		{Name: "when the loading process dies one other loads in its place after the guard", Run: func(t T, b backend) {
			cs := b.New(t, 4)
			guard := semantic.WithClusterGuard(2 * span)
			dead, die := make(chan struct{}), make(chan struct{})
			defer close(die)
			go func() {
				_, _ = cs[0].GetOrFetch(t.Context(), "k", longTTL, func(context.Context) ([]byte, error) {
					close(dead) // from here on it does nothing any more
					<-die
					return nil, errors.New("dead")
				}, guard)
			}()
			receive(t, dead, "the first load to start")
			var fetches atomic.Int32
			results := make(chan fetched, 3)
			for _, c := range cs[1:] {
				go func() {
					value, err := c.GetOrFetch(t.Context(), "k", longTTL, func(context.Context) ([]byte, error) {
						fetches.Add(1)
						return []byte("v"), nil
					}, guard)
					results <- fetched{value, err}
				}()
			}
			waitUntilAsked(b)
			for range 3 {
				if !passes(b, results, 20*span, func(f fetched) {
					if string(f.value) != "v" || f.err != nil {
						t.Errorf("GetOrFetch: %q, %v, want the value", f.value, f.err)
					}
				}) {
					t.Fatalf("a replica still waits for a dead one")
				}
			}
			if fetches.Load() != 1 {
				t.Errorf("%d loads after the first one died, want 1", fetches.Load())
			}
		}},
		{Name: "when the load fails the next process does not wait for the guard", Run: func(t T, b backend) {
			cs := b.New(t, 2)
			guard := semantic.WithClusterGuard(longTTL)
			cause := errors.New("source is down")
			if _, err := cs[0].GetOrFetch(t.Context(), "k", longTTL, func(context.Context) ([]byte, error) { return nil, cause }, guard); !errors.Is(err, cause) {
				t.Errorf("GetOrFetch: %v, want the fetch's error", err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := cs[1].GetOrFetch(t.Context(), "k", longTTL, fetchOf("v"), guard)
				done <- err
			}()
			if err := receive(t, done, "the next process to load"); err != nil {
				t.Errorf("the next process: %v", err)
			}
			wantValue(t, cs[0], "k", "v")
		}},
		{Name: "a change ends the guard of a load that may not store any more", Run: func(t T, b backend) {
			cs := b.New(t, 2)
			guard := semantic.WithClusterGuard(longTTL)
			wantFetch(t, cs[0], "k", "old", longTTL, func(ctx context.Context) ([]byte, error) {
				if err := cs[1].Delete(ctx, "k"); err != nil {
					return nil, err
				}
				done := make(chan error, 1)
				go func() {
					_, err := cs[1].GetOrFetch(t.Context(), "k", longTTL, fetchOf("new"), guard)
					done <- err
				}()
				return []byte("old"), receive(t, done, "a load after the change")
			}, guard)
			wantValue(t, cs[0], "k", "new")
		}},
		{Name: "a wait for another process ends with its context", Run: func(t T, b backend) {
			cs := b.New(t, 2)
			guard := semantic.WithClusterGuard(longTTL)
			wantFetch(t, cs[0], "k", "v", longTTL, func(context.Context) ([]byte, error) {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := cs[1].GetOrFetch(ctx, "k", longTTL, neverFetch(t), guard)
					done <- err
				}()
				time.Sleep(50 * time.Millisecond) // to be waiting; the case holds either way
				cancel()
				if err := receive(t, done, "the cancelled wait to return"); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled wait: %v, want its context's error", err)
				}
				return []byte("v"), nil
			}, guard)
		}},
	}
}
