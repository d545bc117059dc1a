package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/httplimit"
	"github.com/wrkbelt/coord/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func byTenant(r *http.Request) (string, bool) {
	tenant := r.Header.Get("X-Tenant")
	return tenant, tenant != "internal"
}

// service is a limited handler that counts what passes.
func service(t *testing.T, c httplimit.Config) (call func(tenant string) *httptest.ResponseRecorder, passed *int) {
	t.Helper()
	limited, err := httplimit.Middleware(c)
	if err != nil {
		t.Fatal(err)
	}
	passed = new(int)
	h := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { *passed++; _, _ = w.Write([]byte("ok")) }))
	return func(tenant string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Tenant", tenant)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}, passed
}

func TestRequestsAboveTheLimitAreRefusedWithTheirHeaders(t *testing.T) {
	clock := testkit.NewClock()
	call, passed := service(t, httplimit.Config{Limiter: testkit.NewRateLimiter(clock), Limit: semantic.PerMinute(2), Key: byTenant})
	for i, want := range []struct {
		status           int
		remaining, reset string
		retry            string
	}{{200, "1", "60", ""}, {200, "0", "60", ""}, {429, "0", "60", "60"}} {
		w := call("a")
		h := w.Header()
		got := fmt.Sprint(w.Code, h.Get("RateLimit-Limit"), h.Get("RateLimit-Policy"), h.Get("RateLimit-Remaining"), h.Get("RateLimit-Reset"), h.Get("Retry-After"))
		if expect := fmt.Sprint(want.status, "2", "2;w=60", want.remaining, want.reset, want.retry); got != expect {
			t.Errorf("request %d: %s, want %s", i+1, got, expect)
		}
	}
	if w := call("b"); w.Code != 200 {
		t.Errorf("another tenant: %d, want a budget of its own", w.Code)
	}
	clock.Advance(59500 * time.Millisecond)
	if w := call("a"); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("half a second before: %d, Retry-After %s, want 429 and a whole second", w.Code, w.Header().Get("Retry-After"))
	}
	clock.Advance(500 * time.Millisecond)
	if w := call("a"); w.Code != 200 {
		t.Errorf("in the next window: %d", w.Code)
	}
	if *passed != 4 {
		t.Errorf("%d passed, want 4", *passed)
	}
}

func TestWithoutAnAnswerNothingPasses(t *testing.T) {
	limiter := testkit.NewRateLimiter(nil)
	call, passed := service(t, httplimit.Config{Limiter: limiter, Limit: semantic.PerMinute(2), Key: byTenant})
	heal := limiter.Backend().Inject(testkit.FaultDown)
	if w := call("a"); w.Code != 503 || *passed != 0 {
		t.Errorf("during an outage: %d with %d passed, want 503 and none", w.Code, *passed)
	}
	if w := call("internal"); w.Code != 200 || w.Header().Get("RateLimit-Limit") != "" {
		t.Errorf("a request that is not limited: %d, %v", w.Code, w.Header())
	}
	heal()
	if w := call(strings.Repeat("x", 600)); w.Code != 400 {
		t.Errorf("a key out of range: %d, want 400", w.Code)
	}
}

func TestAnswersCanBeReplaced(t *testing.T) {
	limiter := testkit.NewRateLimiter(nil)
	var cause error
	call, _ := service(t, httplimit.Config{
		Limiter: limiter, Limit: semantic.PerMinute(1), Key: byTenant,
		Denied: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(420) }),
		Failed: func(w http.ResponseWriter, _ *http.Request, err error) { cause = err; w.WriteHeader(599) },
	})
	call("a")
	if w := call("a"); w.Code != 420 || w.Header().Get("Retry-After") == "" {
		t.Errorf("denied: %d, %v", w.Code, w.Header())
	}
	limiter.Close()
	if w := call("a"); w.Code != 599 || !errors.Is(cause, semantic.ErrClosed) {
		t.Errorf("failed: %d, %v", w.Code, cause)
	}
}

func TestTheConfigIsChecked(t *testing.T) {
	ok := httplimit.Config{Limiter: testkit.NewRateLimiter(nil), Limit: semantic.PerMinute(1), Key: byTenant}
	for name, edit := range map[string]func(*httplimit.Config){
		"Limiter":   func(c *httplimit.Config) { c.Limiter = nil },
		"Key":       func(c *httplimit.Config) { c.Key = nil },
		"limit.Max": func(c *httplimit.Config) { c.Limit.Max = 0 },
	} {
		c := ok
		edit(&c)
		_, err := httplimit.Middleware(c)
		var bad *semantic.ArgumentError
		if !errors.As(err, &bad) || bad.Argument != name {
			t.Errorf("%v, want a refusal of %s", err, name)
		}
	}
}

func ExampleMiddleware() {
	limited, err := httplimit.Middleware(httplimit.Config{
		Limiter: testkit.NewRateLimiter(testkit.NewClock()), // in a service: injected
		Limit:   semantic.PerSecond(1),
		Key:     func(r *http.Request) (string, bool) { return r.Header.Get("X-Tenant"), true },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	for range 2 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Tenant", "acme")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 ""
	// 429 "1"
}
