package testkit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

type fetchKey struct{}

func cacheFetchCases() []cacheCase {
	type backend = Backend[semantic.RemoteCacheProvider]
	return []cacheCase{
		{Name: "GetOrFetch fetches on a miss, stores for its ttl, and reads on a hit", Run: func(t T, b backend) {
			cs := b.New(t, 2)
			wantFetch(t, cs[0], "k", "v", 2*span, fetchOf("v"))
			wantValue(t, cs[1], "k", "v")
			wantFetch(t, cs[1], "k", "v", longTTL, neverFetch(t))
			b.Advance(2*span + 2*time.Millisecond)
			wantMiss(t, cs[0], "k")
			wantFetch(t, cs[0], "k", "again", longTTL, fetchOf("again"))
		}},
		{Name: "the error of a fetch is returned as it is and nothing is stored", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			cause := errors.New("source of truth says no")
			_, err := c.GetOrFetch(t.Context(), "k", longTTL, func(context.Context) ([]byte, error) { return []byte("partial"), cause })
			if err != cause { //nolint:errorlint // as it is
				t.Errorf("GetOrFetch: %v, want the very error of fetch", err)
			}
			wantMiss(t, c, "k")
			wantFetch(t, c, "k", "v", longTTL, fetchOf("v"))
		}},
		{Name: "the loaded value may decide its ttl", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			short := semantic.WithValueTTL(func(value []byte) time.Duration {
				if string(value) == "not this" {
					return 0
				}
				return span
			})
			wantFetch(t, c, "none", "not this", longTTL, fetchOf("not this"), short)
			wantMiss(t, c, "none")
			wantFetch(t, c, "k", "v", longTTL, fetchOf("v"), short)
			b.Advance(span + 2*time.Millisecond)
			wantMiss(t, c, "k")
		}},
		{Name: "a thousand concurrent callers share one fetch", Run: func(t T, b backend) { // eko/gocache#242
			c := b.New(t, 1)[0]
			const callers = 1000
			var fetches, entered atomic.Int32
			release := make(chan struct{})
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					entered.Add(1)
					wantFetch(t, c, "k", "v", longTTL, func(context.Context) ([]byte, error) {
						fetches.Add(1)
						<-release
						return []byte("v"), nil
					})
				})
			}
			if !eventually(func() bool { return entered.Load() == callers && fetches.Load() > 0 }) {
				t.Errorf("callers did not come")
			}
			close(release)
			all.Wait()
			if fetches.Load() != 1 {
				t.Errorf("%d fetches for %d concurrent callers, want 1", fetches.Load(), callers)
			}
		}},
		{Name: "every caller of a shared fetch gets a value of its own", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			got := shared(t, c, 8, fetchOf("value"))
			for _, g := range got {
				if g.err != nil || string(g.value) != "value" {
					t.Errorf("GetOrFetch: %q, %v, want the fetched value, whatever others do to theirs", g.value, g.err)
				}
				clear(g.value)
			}
		}},
		{Name: "a caller's cancel ends its own wait and nobody else's", Run: func(t T, b backend) { // golang/go#41133
			c := b.New(t, 1)[0]
			started, release := make(chan struct{}), make(chan struct{})
			leader, cancelLeader := context.WithCancel(t.Context())
			leaderDone, otherDone := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := c.GetOrFetch(leader, "k", longTTL, func(ctx context.Context) ([]byte, error) {
					close(started)
					select {
					case <-release:
						return []byte("v"), nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				leaderDone <- err
			}()
			receive(t, started, "the fetch to start")
			go func() {
				value, err := c.GetOrFetch(t.Context(), "k", longTTL, fetchOf("of a second fetch"))
				if string(value) != "v" {
					t.Errorf("the other caller got %q, want the value of the shared fetch", value)
				}
				otherDone <- err
			}()
			waitUntilAsked(b)
			cancelLeader()
			if err := receive(t, leaderDone, "the cancelled caller to return"); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled caller: %v, want its context's error", err)
			}
			close(release)
			if err := receive(t, otherDone, "the other caller to return"); err != nil {
				t.Errorf("the other caller: %v, want the value", err)
			}
		}},
		{Name: "a fetch that nobody waits for is cancelled, and the next caller starts anew", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			started, ended := make(chan struct{}), make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := c.GetOrFetch(ctx, "k", longTTL, func(ctx context.Context) ([]byte, error) {
					close(started)
					<-ctx.Done()
					close(ended)
					return nil, ctx.Err()
				})
				done <- err
			}()
			receive(t, started, "the fetch to start")
			cancel()
			receive(t, done, "the caller to return")
			wantFetch(t, c, "k", "v", longTTL, fetchOf("v"))
			receive(t, ended, "the fetch's context to end")
		}},
		{Name: "a fetch has the values of its caller's context and not its deadline", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), fetchKey{}, "trace"), longTTL)
			defer cancel()
			_, err := c.GetOrFetch(ctx, "k", longTTL, func(ctx context.Context) ([]byte, error) {
				if ctx.Value(fetchKey{}) != "trace" {
					t.Errorf("the fetch's context lacks its caller's values")
				}
				if _, has := ctx.Deadline(); has {
					t.Errorf("the fetch's context has its caller's deadline, which others need not share")
				}
				return []byte("v"), nil
			})
			if err != nil {
				t.Errorf("GetOrFetch: %v", err)
			}
		}},
		{Name: "a fetch that panics or ends its goroutine is an error for every caller, once", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			cause := errors.New("boom")
			for name, fetch := range map[string]semantic.FetchFunc{
				"panic":  func(context.Context) ([]byte, error) { panic(cause) },
				"goexit": func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil },
			} {
				for _, g := range shared(t, c, 4, fetch) {
					if !errors.Is(g.err, semantic.ErrFetchPanicked) {
						t.Errorf("%s: %v, want ErrFetchPanicked", name, g.err)
					}
					if name == "panic" && !errors.Is(g.err, cause) {
						t.Errorf("%s: %v, want the error that was panicked with", name, g.err)
					}
				}
			}
			wantMiss(t, c, "k")
			wantFetch(t, c, "k", "v", longTTL, fetchOf("v"))
		}},
	}
}

func cacheStaleCases() []cacheCase {
	type backend = Backend[semantic.RemoteCacheProvider]
	return []cacheCase{
		{Name: "a load that began before a change does not store its value afterwards", Run: func(t T, b backend) { // FusionCache#535
			for name, change := range map[string]func(c semantic.RemoteCacheProvider, key string) error{
				"Delete": func(c semantic.RemoteCacheProvider, key string) error { return c.Delete(t.Context(), key) },
				"Set": func(c semantic.RemoteCacheProvider, key string) error {
					return c.Set(t.Context(), key, []byte("new"), longTTL)
				},
				"Add": func(c semantic.RemoteCacheProvider, key string) error {
					_, err := c.Add(t.Context(), key, []byte("new"), longTTL)
					return err
				},
			} {
				for _, who := range []int{0, 1} { // the loading replica, and another one
					cs := b.New(t, 2)
					got, err := cs[0].GetOrFetch(t.Context(), "k", longTTL, func(context.Context) ([]byte, error) {
						return []byte("old"), change(cs[who], "k")
					})
					if string(got) != "old" || err != nil {
						t.Errorf("%s during a load: %q, %v, want the loaded value returned", name, got, err)
					}
					if name == "Delete" {
						wantMiss(t, cs[1], "k")
					} else {
						wantValue(t, cs[1], "k", "new")
					}
				}
			}
		}},
		{Name: "a value that came and went during a load keeps it from storing", Run: func(t T, b backend) {
			cs := b.New(t, 2)
			_, err := cs[0].GetOrFetch(t.Context(), "k", longTTL, func(ctx context.Context) ([]byte, error) {
				mustSet(t, cs[1], "k", "new")
				return []byte("old"), cs[1].Delete(ctx, "k")
			})
			if err != nil {
				t.Errorf("GetOrFetch: %v", err)
			}
			wantMiss(t, cs[1], "k")
		}},
		{Name: "a caller after a Delete does not join the load before it", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			started, release, done := make(chan struct{}), make(chan struct{}), make(chan string, 1)
			go func() {
				value, _ := c.GetOrFetch(t.Context(), "k", longTTL, func(context.Context) ([]byte, error) {
					close(started)
					<-release
					return []byte("old"), nil
				})
				done <- string(value)
			}()
			receive(t, started, "the first load to start")
			if err := c.Delete(t.Context(), "k"); err != nil {
				t.Errorf("Delete: %v", err)
			}
			wantFetch(t, c, "k", "new", longTTL, fetchOf("new"))
			close(release)
			if got := receive(t, done, "the first load to end"); got != "old" {
				t.Errorf("the first caller got %q, want what it loaded", got)
			}
			wantValue(t, c, "k", "new")
		}},
		{Name: "loads that follow each other closely do not keep each other from storing", Run: func(t T, b backend) {
			cs := b.New(t, 3)
			load := func(i int, during func()) {
				wantFetch(t, cs[i], "k", fmt.Sprint("v", i), longTTL, func(context.Context) ([]byte, error) {
					during()
					return []byte(fmt.Sprint("v", i)), nil
				})
			}
			// Each begins while the one before is running, and none has ended yet.
			load(0, func() {
				load(1, func() {
					load(2, func() {})
					wantValue(t, cs[0], "k", "v2")
					_ = cs[0].Delete(t.Context(), "k")
				})
				wantMiss(t, cs[0], "k")
				started, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					load(1, func() { close(started); <-release })
				}()
				receive(t, started, "a load to start")
				load(2, func() {})
				wantValue(t, cs[0], "k", "v2")
				close(release)
				receive(t, done, "a load to end")
				wantValue(t, cs[0], "k", "v2")
			})
		}},
	}
}

// wantFetch is a GetOrFetch that must give want.
func wantFetch(t T, c semantic.RemoteCacheProvider, key, want string, ttl time.Duration, fetch semantic.FetchFunc, opts ...semantic.FetchOption) {
	t.Helper()
	if got, err := c.GetOrFetch(t.Context(), key, ttl, fetch, opts...); string(got) != want || err != nil {
		t.Errorf("GetOrFetch(%q): %q, %v, want %q", key, got, err, want)
	}
}

type fetched struct {
	value []byte
	err   error
}

// shared makes n callers share one run of fetch, for the key "k".
func shared(t T, c semantic.RemoteCacheProvider, n int, fetch semantic.FetchFunc) []fetched {
	t.Helper()
	release := make(chan struct{})
	started := make(chan struct{})
	results := make(chan fetched, n)
	var once sync.Once
	for range n {
		go func() {
			value, err := c.GetOrFetch(t.Context(), "k", longTTL, func(ctx context.Context) ([]byte, error) {
				once.Do(func() { close(started) })
				<-release
				return fetch(ctx)
			})
			results <- fetched{value, err}
		}()
	}
	receive(t, started, "a fetch to start")
	time.Sleep(50 * time.Millisecond) // for the others to join; the case holds either way
	close(release)
	var got []fetched
	for range n {
		got = append(got, receive(t, results, "a caller to return"))
	}
	return got
}
