package testkit

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// RunRemoteCacheProvider runs the conformance suite of [semantic.RemoteCacheProvider] on b.
func RunRemoteCacheProvider(t *testing.T, b Backend[semantic.RemoteCacheProvider]) {
	t.Helper()
	runCases(t, b, RemoteCacheProviderCases())
}

// RemoteCacheProviderCases returns the suite's cases.
func RemoteCacheProviderCases() []Case[semantic.RemoteCacheProvider] {
	cases := cacheValueCases()
	cases = append(cases, cacheFetchCases()...)
	cases = append(cases, cacheStaleCases()...)
	cases = append(cases, cacheGuardCases()...)
	return append(cases, cacheFaultCases()...)
}

type cacheCase = Case[semantic.RemoteCacheProvider]

func cacheValueCases() []cacheCase {
	type backend = Backend[semantic.RemoteCacheProvider]
	return []cacheCase{
		{Name: "a key without a value is a miss, not an error", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			wantMiss(t, c, "k")
			if err := c.Delete(t.Context(), "k", "other"); err != nil {
				t.Errorf("deleting keys without values: %v", err)
			}
			if err := c.Delete(t.Context()); err != nil {
				t.Errorf("deleting no keys: %v", err)
			}
		}},
		{Name: "every replica reads what one has set, byte for byte", Run: func(t T, b backend) {
			cs := b.New(t, 2)
			for key, value := range map[string][]byte{
				"plain": []byte("value"), "empty": {}, "binary": {0, 255, '\r', '\n', 0},
				"a:b": []byte("1"), "{a}": []byte("2"), "a}": []byte("3"), "%7B": []byte("4"), "ключ": []byte("5"),
				"a:b:load": []byte("6"), strings.Repeat("x", semantic.MaxKeyBytes): bytes.Repeat([]byte("big"), 100_000),
			} {
				mustSet(t, cs[0], key, string(value))
				wantValue(t, cs[1], key, string(value))
			}
			mustSet(t, cs[0], "plain", "new")
			wantValue(t, cs[1], "plain", "new")
		}},
		{Name: "nil is stored as an empty value, and found", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			if err := c.Set(t.Context(), "k", nil, longTTL); err != nil {
				t.Errorf("Set of nil: %v", err)
			}
			wantValue(t, c, "k", "")
		}},
		{Name: "a value lives for its ttl, and no longer", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			start := time.Now()
			if err := c.Set(t.Context(), "k", []byte("v"), 2*span); err != nil {
				t.Errorf("Set: %v", err)
			}
			b.Advance(span)
			if _, found := mustGet(t, c, "k"); !found && time.Since(start) < 2*span {
				t.Errorf("gone before its ttl")
			}
			b.Advance(span + 2*time.Millisecond)
			wantMiss(t, c, "k")
		}},
		{Name: "Set gives a value a new ttl", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			_ = c.Set(t.Context(), "k", []byte("v"), span)
			_ = c.Set(t.Context(), "k", []byte("v"), longTTL)
			b.Advance(2 * span)
			wantValue(t, c, "k", "v")
		}},
		{Name: "Delete removes every key it is given and no other", Run: func(t T, b backend) {
			cs := b.New(t, 2)
			for _, key := range []string{"a", "b", "c", "keep"} {
				mustSet(t, cs[0], key, key)
			}
			if err := cs[1].Delete(t.Context(), "a", "b", "c"); err != nil {
				t.Errorf("Delete: %v", err)
			}
			for _, key := range []string{"a", "b", "c"} {
				wantMiss(t, cs[0], key)
			}
			wantValue(t, cs[0], "keep", "keep")
		}},
		{Name: "Add stores only where there is no value", Run: func(t T, b backend) {
			cs := b.New(t, 2)
			for i, want := range []bool{true, false} {
				if added, err := cs[i].Add(t.Context(), "k", []byte{'0' + byte(i)}, longTTL); added != want || err != nil {
					t.Errorf("Add number %d: %v, %v, want %v", i+1, added, err, want)
				}
			}
			wantValue(t, cs[0], "k", "0")
		}},
		{Name: "Replace never revives a deleted value", Run: func(t T, b backend) { // connect-redis#328
			cs := b.New(t, 2)
			mustSet(t, cs[0], "k", "session")
			if replaced, err := cs[1].Replace(t.Context(), "k", []byte("saved"), longTTL); !replaced || err != nil {
				t.Errorf("Replace of a value: %v, %v, want true", replaced, err)
			}
			wantValue(t, cs[0], "k", "saved")
			_ = cs[0].Delete(t.Context(), "k") // the logout
			if replaced, err := cs[1].Replace(t.Context(), "k", []byte("slow save"), longTTL); replaced || err != nil {
				t.Errorf("Replace after Delete: %v, %v, want false", replaced, err)
			}
			wantMiss(t, cs[0], "k")
		}},
		{Name: "Touch prolongs a value and never makes one", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			if touched, err := c.Touch(t.Context(), "k", longTTL); touched || err != nil {
				t.Errorf("Touch without a value: %v, %v, want false", touched, err)
			}
			wantMiss(t, c, "k")
			_ = c.Set(t.Context(), "k", []byte("v"), 2*span)
			if touched, err := c.Touch(t.Context(), "k", longTTL); !touched || err != nil {
				t.Errorf("Touch of a value: %v, %v, want true", touched, err)
			}
			b.Advance(3 * span)
			wantValue(t, c, "k", "v")
		}},
		{Name: "what is returned is the caller's own", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			stored := []byte("value")
			_ = c.Set(t.Context(), "k", stored, longTTL)
			stored[0] = 'X'
			got, _ := mustGet(t, c, "k")
			if len(got) > 0 {
				got[0] = 'Y'
			}
			fetched, err := c.GetOrFetch(t.Context(), "k", longTTL, neverFetch(t))
			if err == nil && len(fetched) > 0 {
				fetched[0] = 'Z'
			}
			wantValue(t, c, "k", "value")
		}},
	}
}

func cacheFaultCases() []cacheCase {
	type backend = Backend[semantic.RemoteCacheProvider]
	return []cacheCase{
		{Name: "arguments out of range are refused by name before any I/O", Needs: NeedFaults, Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			defer b.Fault(t, FaultDown)()
			ctx := t.Context()
			for _, key := range []string{"", "a\nb", strings.Repeat("x", semantic.MaxKeyBytes+1), "\xff"} {
				for _, call := range cacheCalls(c, key, longTTL) {
					wantArgument(t, call(ctx), "key")
				}
			}
			for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, 367 * 24 * time.Hour} {
				for name, call := range cacheCalls(c, "k", ttl) {
					if name != "Get" && name != "Delete" {
						wantArgument(t, call(ctx), "ttl")
					}
				}
			}
			_, err := c.GetOrFetch(ctx, "k", longTTL, nil)
			wantArgument(t, err, "fetch")
			_, err = c.GetOrFetch(ctx, "k", longTTL, neverFetch(t), semantic.WithClusterGuard(-time.Second))
			wantArgument(t, err, "clusterGuard")
		}},
		{Name: "an outage is an error from every method, never a miss, and no fetch runs", Needs: NeedFaults, Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			mustSet(t, c, "k", "v")
			heal := b.Fault(t, FaultDown)
			for name, call := range cacheCalls(c, "k", longTTL) {
				if err := call(t.Context()); !errors.Is(err, semantic.ErrUnavailable) {
					t.Errorf("%s during an outage: %v, want ErrUnavailable", name, err)
				}
			}
			if _, err := c.GetOrFetch(t.Context(), "k", longTTL, neverFetch(t)); !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("GetOrFetch during an outage: %v, want ErrUnavailable", err)
			}
			heal()
			wantValue(t, c, "k", "v")
		}},
		{Name: "a fetched value that cannot be stored is returned all the same", Needs: NeedFaults, Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			heal := func() {}
			got, err := c.GetOrFetch(t.Context(), "k", longTTL, func(context.Context) ([]byte, error) {
				heal = b.Fault(t, FaultDown)
				return []byte("v"), nil
			})
			heal()
			if string(got) != "v" || err != nil {
				t.Errorf("GetOrFetch: %q, %v, want the fetched value", got, err)
			}
			wantMiss(t, c, "k")
		}},
		{Name: "a write whose reply is lost is unknown, and applied at most once", Needs: NeedFaults, Run: func(t T, b backend) {
			for _, name := range []string{"Set", "Add", "Replace", "Touch", "Delete"} {
				c := b.New(t, 1)[0]
				if name != "Add" {
					mustSet(t, c, "k", "before")
				}
				heal := b.Fault(t, FaultLoseReply)
				err := cacheCalls(c, "k", longTTL)[name](t.Context())
				heal()
				if !errors.Is(err, semantic.ErrUnknown) {
					t.Errorf("%s with its reply lost: %v, want ErrUnknown", name, err)
				}
			}
		}},
		{Name: "a read whose reply is lost is an error and no fetch runs", Needs: NeedFaults, Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			wantMiss(t, c, "k")
			heal := b.Fault(t, FaultLoseReply)
			_, found, err := c.Get(t.Context(), "k")
			heal()
			if found || !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("Get with its reply lost: found %v, %v, want ErrUnavailable: a read changes nothing", found, err)
			}
			heal = b.Fault(t, FaultLoseReply)
			_, err = c.GetOrFetch(t.Context(), "k", longTTL, neverFetch(t))
			heal()
			if !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("GetOrFetch with its read's reply lost: %v, want ErrUnavailable", err)
			}
		}},
		{Name: "a store whose reply is lost neither fails the call nor runs fetch again", Needs: NeedFaults, Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			wantMiss(t, c, "warm")
			fetches := 0
			heal := func() {}
			got, err := c.GetOrFetch(t.Context(), "k", longTTL, func(context.Context) ([]byte, error) {
				fetches++
				heal = b.Fault(t, FaultLoseReply)
				return []byte("v"), nil
			})
			heal()
			if string(got) != "v" || err != nil || fetches != 1 {
				t.Errorf("GetOrFetch: %q, %v after %d fetches, want the value of one", got, err, fetches)
			}
		}},
		{Name: "a call to a silent backend ends with its context", Needs: NeedFaults, Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			mustSet(t, c, "k", "v")
			heal := b.Fault(t, FaultHang)
			defer heal()
			calls := cacheCalls(c, "k", longTTL)
			calls["GetOrFetch"] = func(ctx context.Context) error {
				_, err := c.GetOrFetch(ctx, "k", longTTL, neverFetch(t))
				return err
			}
			for name, call := range calls {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- call(ctx) }()
				waitUntilAsked(b)
				cancel()
				if err := receive(t, done, name+" to return after its cancel"); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v, want the context's error", name, err)
				}
			}
		}},
		{Name: "after close every method says ErrClosed, also to those who wait", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			closable, ok := c.(interface{ Close() })
			if !ok {
				t.Logf("not run: this client cannot be closed by itself")
				return
			}
			started, ended, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := c.GetOrFetch(t.Context(), "k", longTTL, func(ctx context.Context) ([]byte, error) {
					close(started)
					<-ctx.Done()
					close(ended)
					return nil, ctx.Err()
				})
				done <- err
			}()
			receive(t, started, "a fetch to start")
			closable.Close()
			receive(t, ended, "the fetch's context to end")
			if err := receive(t, done, "the waiting caller to return"); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("a caller that was waiting: %v, want ErrClosed", err)
			}
			for name, call := range cacheCalls(c, "k", longTTL) {
				if err := call(t.Context()); !errors.Is(err, semantic.ErrClosed) {
					t.Errorf("%s after close: %v, want ErrClosed", name, err)
				}
			}
			if _, err := c.GetOrFetch(t.Context(), "k", longTTL, neverFetch(t)); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("GetOrFetch after close: %v, want ErrClosed", err)
			}
		}},
		{Name: "an ended context changes nothing", Run: func(t T, b backend) {
			c := b.New(t, 1)[0]
			mustSet(t, c, "k", "v")
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			for name, call := range cacheCalls(c, "k", longTTL) {
				if err := call(ended); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v, want the context's error", name, err)
				}
			}
			if _, err := c.GetOrFetch(ended, "other", longTTL, neverFetch(t)); !errors.Is(err, context.Canceled) {
				t.Errorf("GetOrFetch: %v, want the context's error", err)
			}
			wantValue(t, c, "k", "v")
		}},
	}
}

// cacheCalls are the methods beside GetOrFetch, each as a call that must succeed.
func cacheCalls(c semantic.RemoteCacheProvider, key string, ttl time.Duration) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Get":    func(ctx context.Context) error { _, _, err := c.Get(ctx, key); return err },
		"Set":    func(ctx context.Context) error { return c.Set(ctx, key, []byte("new"), ttl) },
		"Delete": func(ctx context.Context) error { return c.Delete(ctx, key) },
		"Add":    func(ctx context.Context) error { _, err := c.Add(ctx, key, []byte("new"), ttl); return err },
		"Replace": func(ctx context.Context) error {
			_, err := c.Replace(ctx, key, []byte("new"), ttl)
			return err
		},
		"Touch": func(ctx context.Context) error { _, err := c.Touch(ctx, key, ttl); return err },
	}
}

func mustGet(t T, c semantic.RemoteCacheProvider, key string) ([]byte, bool) {
	t.Helper()
	value, found, err := c.Get(t.Context(), key)
	if err != nil {
		t.Errorf("Get(%.20q): %v", key, err)
	}
	return value, found
}

func mustSet(t T, c semantic.RemoteCacheProvider, key, value string) {
	t.Helper()
	if err := c.Set(t.Context(), key, []byte(value), longTTL); err != nil {
		t.Errorf("Set(%.20q): %v", key, err)
	}
}

func wantValue(t T, c semantic.RemoteCacheProvider, key, want string) {
	t.Helper()
	if got, found := mustGet(t, c, key); !found || string(got) != want {
		t.Errorf("Get(%.20q): %.20q, found %v, want %.20q", key, got, found, want)
	}
}

func wantMiss(t T, c semantic.RemoteCacheProvider, key string) {
	t.Helper()
	if got, found := mustGet(t, c, key); found || got != nil {
		t.Errorf("Get(%.20q): %.20q, found %v, want a miss", key, got, found)
	}
}

// neverFetch is a fetch that must not run.
func neverFetch(t T) semantic.FetchFunc {
	return func(context.Context) ([]byte, error) {
		t.Errorf("fetch ran")
		return nil, errors.New("fetch ran")
	}
}

// fetchOf is a fetch of value.
func fetchOf(value string) semantic.FetchFunc {
	return func(context.Context) ([]byte, error) { return []byte(value), nil }
}
