package semantic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

type profile struct {
	Name  string
	Until time.Time `json:",omitzero"`
}

// profiles is a typed cache over a double on a clock that only the test moves.
func profiles(t *testing.T, edit func(*semantic.CacheConfig[profile])) (*semantic.Cache[profile], *testkit.RemoteCacheProvider, *testkit.Clock) {
	t.Helper()
	clock := testkit.NewClock()
	provider := testkit.NewRemoteCacheProvider(clock)
	t.Cleanup(provider.Close)
	config := semantic.CacheConfig[profile]{Prefix: "profile:", TTL: time.Minute}
	if edit != nil {
		edit(&config)
	}
	cache, err := semantic.NewCache(provider, config)
	if err != nil {
		t.Fatal(err)
	}
	return cache, provider, clock
}

func load(name string) func(context.Context) (profile, error) {
	return func(context.Context) (profile, error) { return profile{Name: name}, nil }
}

func neverLoad(t *testing.T) func(context.Context) (profile, error) {
	return func(context.Context) (profile, error) {
		t.Error("fetch ran")
		return profile{}, errors.New("fetch ran")
	}
}

func TestCacheTellsItsFiveOutcomesApart(t *testing.T) {
	cache, provider, _ := profiles(t, func(c *semantic.CacheConfig[profile]) { c.AbsentTTL = time.Second })
	ctx := t.Context()
	if err := cache.Set(ctx, "hit", profile{Name: "Ada"}); err != nil {
		t.Fatal(err)
	}
	_, err := cache.GetOrFetch(ctx, "absent", func(context.Context) (profile, error) {
		return profile{}, fmt.Errorf("no such user: %w", semantic.ErrAbsent)
	})
	if !errors.Is(err, semantic.ErrAbsent) {
		t.Errorf("fetch of an absent value: %v, want ErrAbsent", err)
	}
	for key, data := range map[string]string{"corrupt": "\x01{", "foreign": `{"Name":"x"}`, "empty": "", "tail": "\x02x"} {
		if err := provider.Set(ctx, "profile:"+key, []byte(data), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		key     string
		down    bool
		outcome semantic.CacheOutcome
		err     error
	}{
		{"hit", false, semantic.CacheHit, nil},
		{"miss", false, semantic.CacheMiss, nil},
		{"absent", false, semantic.CacheAbsent, nil},
		{"corrupt", false, semantic.CacheCorrupt, semantic.ErrCorrupt}, // PostHog/posthog#40704
		{"foreign", false, semantic.CacheCorrupt, semantic.ErrCorrupt},
		{"empty", false, semantic.CacheCorrupt, semantic.ErrCorrupt},
		{"tail", false, semantic.CacheCorrupt, semantic.ErrCorrupt},
		{"hit", true, semantic.CacheError, semantic.ErrUnavailable},
	} {
		t.Run(fmt.Sprint(c.key, " down ", c.down), func(t *testing.T) {
			if c.down {
				defer provider.Backend().Inject(testkit.FaultDown)()
			}
			before := cache.Count(c.outcome)
			value, outcome, err := cache.Get(ctx, c.key)
			if outcome != c.outcome || !errors.Is(err, c.err) {
				t.Errorf("outcome %v, %v, want %v, %v", outcome, err, c.outcome, c.err)
			}
			if (value.Name == "Ada") != (c.outcome == semantic.CacheHit) {
				t.Errorf("value %+v with outcome %v", value, outcome)
			}
			if cache.Count(c.outcome) != before+1 {
				t.Errorf("the look was not counted as %v", c.outcome)
			}
		})
	}
}

func TestCacheFetchesOnAMissAndReadsOnAHit(t *testing.T) {
	cache, _, clock := profiles(t, nil)
	for i, fetch := range []func(context.Context) (profile, error){load("Ada"), neverLoad(t)} {
		got, err := cache.GetOrFetch(t.Context(), "1", fetch)
		if got.Name != "Ada" || err != nil {
			t.Errorf("call %d: %+v, %v, want Ada", i+1, got, err)
		}
	}
	clock.Advance(time.Minute)
	if got, err := cache.GetOrFetch(t.Context(), "1", load("Grace")); got.Name != "Grace" || err != nil {
		t.Errorf("after the ttl: %+v, %v, want a new load", got, err)
	}
	if hits, misses := cache.Count(semantic.CacheHit), cache.Count(semantic.CacheMiss); hits != 1 || misses != 2 {
		t.Errorf("%d hits and %d misses counted, want 1 and 2", hits, misses)
	}
}

func TestCacheRemembersAnAbsenceForItsOwnTime(t *testing.T) {
	cache, _, clock := profiles(t, func(c *semantic.CacheConfig[profile]) { c.AbsentTTL = time.Second })
	gone := func(context.Context) (profile, error) { return profile{}, semantic.ErrAbsent }
	for i, fetch := range []func(context.Context) (profile, error){gone, neverLoad(t)} {
		if _, err := cache.GetOrFetch(t.Context(), "1", fetch); !errors.Is(err, semantic.ErrAbsent) {
			t.Errorf("call %d: %v, want ErrAbsent", i+1, err)
		}
	}
	clock.Advance(time.Second)
	if got, err := cache.GetOrFetch(t.Context(), "1", load("Ada")); got.Name != "Ada" || err != nil {
		t.Errorf("after the absence's ttl: %+v, %v, want a new load", got, err)
	}
}

func TestCacheStoresNoAbsenceUnlessAsked(t *testing.T) {
	cache, provider, _ := profiles(t, nil)
	_, err := cache.GetOrFetch(t.Context(), "1", func(context.Context) (profile, error) { return profile{}, semantic.ErrAbsent })
	if !errors.Is(err, semantic.ErrAbsent) || provider.Backend().Keys() != 0 {
		t.Errorf("%v with %d keys stored, want ErrAbsent and none", err, provider.Backend().Keys())
	}
}

func TestCacheDoesNotStoreAStaleAbsence(t *testing.T) {
	cache, _, _ := profiles(t, func(c *semantic.CacheConfig[profile]) { c.AbsentTTL = time.Minute })
	ctx := t.Context()
	_, err := cache.GetOrFetch(ctx, "1", func(context.Context) (profile, error) {
		return profile{}, errors.Join(semantic.ErrAbsent, cache.Set(ctx, "1", profile{Name: "new"})) // registered meanwhile
	})
	if !errors.Is(err, semantic.ErrAbsent) {
		t.Errorf("%v, want ErrAbsent", err)
	}
	if got, outcome, _ := cache.Get(ctx, "1"); outcome != semantic.CacheHit || got.Name != "new" {
		t.Errorf("%+v, %v, want the value that was set during the load", got, outcome)
	}
}

func TestCacheReturnsOrReloadsWhatItCannotDecode(t *testing.T) {
	for _, reload := range []bool{false, true} {
		cache, provider, _ := profiles(t, func(c *semantic.CacheConfig[profile]) { c.ReloadCorrupt = reload })
		_ = provider.Set(t.Context(), "profile:1", []byte("\x01not JSON"), time.Minute)
		got, err := cache.GetOrFetch(t.Context(), "1", load("Ada"))
		if reload && (got.Name != "Ada" || err != nil) {
			t.Errorf("with ReloadCorrupt: %+v, %v, want a new load", got, err)
		}
		if !reload && !errors.Is(err, semantic.ErrCorrupt) {
			t.Errorf("without ReloadCorrupt: %+v, %v, want ErrCorrupt", got, err)
		}
		if n := cache.Count(semantic.CacheCorrupt); n != 1 {
			t.Errorf("%d corrupt values counted, want 1", n)
		}
	}
}

func TestCacheTTLIsJitteredDownwardsOnly(t *testing.T) {
	cache, _, clock := profiles(t, func(c *semantic.CacheConfig[profile]) { c.Jitter = 0.5 })
	const n = 200
	for i := range n {
		if err := cache.Set(t.Context(), fmt.Sprint(i), profile{}); err != nil {
			t.Fatal(err)
		}
	}
	live := func() (live int) {
		for i := range n {
			if _, outcome, _ := cache.Get(t.Context(), fmt.Sprint(i)); outcome == semantic.CacheHit {
				live++
			}
		}
		return live
	}
	clock.Advance(30*time.Second - time.Millisecond)
	if got := live(); got != n {
		t.Errorf("%d of %d live at half the ttl, want all: jitter takes half at most", got, n)
	}
	clock.Advance(15 * time.Second)
	if got := live(); got == 0 || got == n {
		t.Errorf("%d of %d live at three quarters of the ttl, want some: they must not end together", got, n)
	}
	clock.Advance(15*time.Second + time.Millisecond)
	if got := live(); got != 0 {
		t.Errorf("%d live after the ttl, want none: jitter never prolongs", got)
	}
}

func TestCacheTTLMayComeFromTheValue(t *testing.T) {
	var clock *testkit.Clock
	cache, provider, c := profiles(t, func(c *semantic.CacheConfig[profile]) {
		c.TTLFor = func(p profile) time.Duration { return p.Until.Sub(clock.Now()) }
	})
	clock = c
	ctx := t.Context()
	token := profile{Name: "token", Until: clock.Now().Add(10 * time.Second)}
	if _, err := cache.GetOrFetch(ctx, "1", func(context.Context) (profile, error) { return token, nil }); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10*time.Second - time.Millisecond)
	if _, outcome, _ := cache.Get(ctx, "1"); outcome != semantic.CacheHit {
		t.Errorf("outcome %v before the token ends, want hit", outcome)
	}
	clock.Advance(time.Millisecond)
	if _, outcome, _ := cache.Get(ctx, "1"); outcome != semantic.CacheMiss {
		t.Errorf("outcome %v when the token has ended, want miss", outcome)
	}
	if got, err := cache.GetOrFetch(ctx, "1", func(context.Context) (profile, error) { return token, nil }); got.Name != "token" || err != nil {
		t.Errorf("a value that must not be stored: %+v, %v, want it returned", got, err)
	}
	if err := cache.Set(ctx, "1", token); err != nil || provider.Backend().Keys() != 0 {
		t.Errorf("Set of an ended token: %v with %d keys, want nothing stored", err, provider.Backend().Keys())
	}
}

func TestCacheSessionsAreNotRevived(t *testing.T) { // connect-redis#328, boj/redistore#2
	cache, _, _ := profiles(t, nil)
	ctx := t.Context()
	if added, err := cache.Add(ctx, "sid", profile{Name: "a"}); !added || err != nil {
		t.Errorf("Add: %v, %v", added, err)
	}
	if added, _ := cache.Add(ctx, "sid", profile{Name: "b"}); added {
		t.Error("a session was created twice")
	}
	if ok, err := cache.Replace(ctx, "sid", profile{Name: "c"}); !ok || err != nil {
		t.Errorf("Replace: %v, %v", ok, err)
	}
	if ok, err := cache.Touch(ctx, "sid"); !ok || err != nil {
		t.Errorf("Touch: %v, %v", ok, err)
	}
	if err := cache.Delete(ctx, "sid"); err != nil {
		t.Error(err)
	}
	replaced, _ := cache.Replace(ctx, "sid", profile{Name: "late"})
	touched, _ := cache.Touch(ctx, "sid")
	if _, outcome, _ := cache.Get(ctx, "sid"); replaced || touched || outcome != semantic.CacheMiss {
		t.Errorf("after logout: replaced %v, touched %v, outcome %v, want nothing revived", replaced, touched, outcome)
	}
}

func TestCacheConfigIsChecked(t *testing.T) {
	ok := semantic.CacheConfig[int]{Prefix: "n:", TTL: time.Minute}
	for argument, edit := range map[string]func(*semantic.CacheConfig[int]){
		"Prefix":       func(c *semantic.CacheConfig[int]) { c.Prefix = "" },
		"TTL":          func(c *semantic.CacheConfig[int]) { c.TTL = 0 },
		"Jitter":       func(c *semantic.CacheConfig[int]) { c.Jitter = 1.5 },
		"AbsentTTL":    func(c *semantic.CacheConfig[int]) { c.AbsentTTL = -1 },
		"ClusterGuard": func(c *semantic.CacheConfig[int]) { c.ClusterGuard = time.Nanosecond },
	} {
		config := ok
		edit(&config)
		_, err := semantic.NewCache(testkit.NewRemoteCacheProvider(nil), config)
		var bad *semantic.ArgumentError
		if !errors.As(err, &bad) || bad.Argument != argument {
			t.Errorf("%v, want a refusal of %s", err, argument)
		}
	}
	if _, err := semantic.NewCache(nil, ok); !errors.Is(err, semantic.ErrInvalidArgument) {
		t.Errorf("without a provider: %v", err)
	}
	cache, err := semantic.NewCache(testkit.NewRemoteCacheProvider(nil), ok)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := cache.Get(t.Context(), strings.Repeat("x", semantic.MaxKeyBytes)); !errors.Is(err, semantic.ErrInvalidArgument) {
		t.Errorf("prefix and key above the limit: %v", err)
	}
	if _, err := cache.GetOrFetch(t.Context(), "k", nil); !errors.Is(err, semantic.ErrInvalidArgument) {
		t.Errorf("without a fetch: %v", err)
	}
}

// upper is a codec of another kind, which cannot encode everything.
type upper struct{}

func (upper) Encode(s string) ([]byte, error) {
	if s == "" {
		return nil, errors.New("nothing to encode")
	}
	return []byte(strings.ToUpper(s)), nil
}
func (upper) Decode(data []byte) (string, error) { return strings.ToLower(string(data)), nil }

func TestCacheTakesAnyCodec(t *testing.T) {
	provider := testkit.NewRemoteCacheProvider(nil)
	cache, err := semantic.NewCache(provider, semantic.CacheConfig[string]{Prefix: "s:", TTL: time.Minute, Codec: upper{}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := cache.GetOrFetch(t.Context(), "k", func(context.Context) (string, error) { return "abc", nil }); got != "abc" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if data, _, _ := provider.Get(t.Context(), "s:k"); string(data) != "\x01ABC" {
		t.Errorf("stored %q, want the codec's bytes behind the header", data)
	}
	if err := cache.Set(t.Context(), "k", ""); err == nil {
		t.Error("a value that cannot be encoded was stored")
	}
	if _, err := cache.GetOrFetch(t.Context(), "other", func(context.Context) (string, error) { return "", nil }); err == nil {
		t.Error("a fetched value that cannot be encoded was stored")
	}
}

func FuzzCacheReadsWhateverIsStored(f *testing.F) {
	for _, seed := range []string{"", "\x01", "\x02", "\x02x", "\x01{}", "\x01null", "{}", "\x00", "\x01{\"Name\":1}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		provider := testkit.NewRemoteCacheProvider(nil)
		cache, err := semantic.NewCache(provider, semantic.CacheConfig[profile]{Prefix: "p:", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		_ = provider.Set(t.Context(), "p:k", data, time.Minute)
		_, outcome, err := cache.Get(t.Context(), "k")
		switch outcome {
		case semantic.CacheHit, semantic.CacheAbsent:
			if err != nil {
				t.Errorf("%v with an error: %v", outcome, err)
			}
		case semantic.CacheCorrupt:
			if !errors.Is(err, semantic.ErrCorrupt) {
				t.Errorf("corrupt without ErrCorrupt: %v", err)
			}
		default:
			t.Errorf("a stored value is %v", outcome)
		}
	})
}

func ExampleCache() {
	provider := testkit.NewRemoteCacheProvider(nil) // in a service: injected
	users, err := semantic.NewCache(provider, semantic.CacheConfig[profile]{
		Prefix: "user:", TTL: time.Minute, Jitter: 0.1, AbsentTTL: 5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	user, err := users.GetOrFetch(context.Background(), "42", func(context.Context) (profile, error) {
		return profile{Name: "Ada"}, nil // the read of the source of truth
	})
	fmt.Println(user.Name, err)

	_, err = users.GetOrFetch(context.Background(), "43", func(context.Context) (profile, error) {
		return profile{}, semantic.ErrAbsent // the source has none
	})
	fmt.Println(errors.Is(err, semantic.ErrAbsent))
	// Output:
	// Ada <nil>
	// true
}
