package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/wrkbelt/coord/observability/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func well(context.Context) health.Result { return health.Result{} }

func wantState(t *testing.T, when string, h *health.Health, want health.State) {
	t.Helper()
	if r := h.Check(t.Context()); r.State != want || r.Ready() != (want == health.OK) {
		t.Errorf("%s: %+v, want %s", when, r, want)
	}
}

func TestAServiceIsReadyBetweenItsStartAndItsEnd(t *testing.T) {
	h := health.New()
	wantState(t, "nothing is registered", h, health.Starting)
	a, b := h.Register("a", well), h.Register("b", well)
	wantState(t, "nothing is started", h, health.Starting)
	a.Started()
	wantState(t, "a part is not started", h, health.Starting)
	b.Started()
	wantState(t, "all is started", h, health.OK)
	b.Stopped()
	wantState(t, "a part is stopped", h, health.Starting)
	b.Started()
	h.Stopping()
	wantState(t, "the service is about to stop", h, health.Stopping)
	h.Began()
	wantState(t, "it was started again", h, health.OK)
	a.Closed()
	wantState(t, "a part is closed", h, health.Failing)
	h.Register("a", well).Started()
	wantState(t, "another takes its place", h, health.OK)
}

func TestAServiceWithoutBackendsIsReadyOnceItHasBegun(t *testing.T) {
	h := health.New()
	h.Began()
	wantState(t, "begun", h, health.OK)
}

func TestOfPartsTheSecondOfANameReplacesAClosedOneOnly(t *testing.T) {
	h := health.New()
	h.Register("a", well).Started()
	h.Register("a", func(context.Context) health.Result { return health.Result{Err: errors.New("no")} }).Started()
	if r := h.Check(t.Context()); len(r.Parts) != 2 || r.Ready() {
		t.Errorf("%+v: want both, one of them failing", r)
	}
}

// A part that hangs costs the budget, and no more; one question at a time is asked.
func TestAPartThatHangsIsFailingAfterTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.New()
		var asked atomic.Int32
		hung := h.Register("hung", func(ctx context.Context) health.Result {
			asked.Add(1)
			<-ctx.Done()
			return health.Result{Err: ctx.Err(), Cause: "unavailable"}
		})
		hung.Started()
		h.Register("well", well).Started()
		began := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				r := h.Check(t.Context())
				f, _ := r.Part("hung")
				if other, _ := r.Part("well"); f.State != health.Failing || f.Cause != "timeout" || other.State != health.OK {
					t.Errorf("%+v", r)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != health.Budget {
			t.Errorf("it took %v, want the budget", took)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("a hundred callers asked %d times, want once", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began = time.Now()
		h.Check(ctx)
		if took := time.Since(began); took != 10*time.Millisecond {
			t.Errorf("it took %v, the caller gave it 10 ms", took)
		}
		hung.Closed() // ends the question that is still under way
	})
}

func TestAPartThatIgnoresItsContextHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.New()
		release := make(chan struct{})
		h.Register("deaf", func(context.Context) health.Result {
			<-release
			return health.Result{}
		}).Started()
		began := time.Now()
		if r := h.Check(t.Context()); r.Ready() || time.Since(began) != health.Budget {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
		close(release)
		synctest.Wait()
		wantState(t, "it answers again", h, health.OK)
	})
}

func TestAPanicOfACheckIsAFailureOfItsPart(t *testing.T) {
	h := health.New()
	h.Register("a", func(context.Context) health.Result { panic("no") }).Started()
	wantState(t, "it panics", h, health.Failing)
}

func TestAProbeGetsNoSecret(t *testing.T) {
	const secret = "hunter2"
	h := health.New()
	failing := false
	h.Register("redis", func(context.Context) health.Result {
		r := health.Result{
			Pool:          &health.Pool{Total: 3, Idle: 2},
			Subscriptions: []health.Subscription{{Channel: "tenant-" + secret, Confirmed: true}, {Channel: "b"}},
		}
		if failing {
			r.Err, r.Cause = errors.New("dial redis://user:"+secret+"@10.0.0.1:6379"), "unavailable"
		}
		return r
	}).Started()
	for _, c := range []struct {
		method string
		fails  bool
		code   int
		body   string
	}{
		{http.MethodGet, false, 200, `{"state":"ok","parts":[{"name":"redis","state":"ok","took_ms":0,"pool":{"total":3,"idle":2,"waits":0,"timeouts":0,"stale":0},"subscriptions":{"total":2,"confirmed":1}}]}`},
		{http.MethodGet, true, 503, `{"state":"failing","parts":[{"name":"redis","state":"failing","cause":"unavailable","took_ms":0,"pool":{"total":3,"idle":2,"waits":0,"timeouts":0,"stale":0},"subscriptions":{"total":2,"confirmed":1}}]}`},
		{http.MethodHead, true, 503, ""},
		{http.MethodPost, false, 405, "want GET or HEAD"},
	} {
		failing = c.fails
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, "/ready", nil))
		body := w.Body.String()
		if w.Code != c.code || strings.Contains(body, secret) {
			t.Errorf("%s, failing %v: %d %s", c.method, c.fails, w.Code, body)
		}
		if strings.HasPrefix(c.body, "{") {
			if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", w.Header())
			}
			if got, want := untimed(t, body), untimed(t, c.body); got != want {
				t.Errorf("body\n%s\nwant\n%s", got, want)
			}
		} else if strings.TrimSpace(body) != c.body {
			t.Errorf("body %q, want %q", body, c.body)
		}
	}
	if f, _ := h.Check(t.Context()).Part("redis"); f.Subscriptions[0].Channel != "tenant-"+secret {
		t.Error("the report itself does not tell the names")
	}
}

// untimed is the body without the times in it.
func untimed(t *testing.T, body string) string {
	t.Helper()
	var v struct {
		State string           `json:"state"`
		Parts []map[string]any `json:"parts"`
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, p := range v.Parts {
		p["took_ms"] = 0
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestANilHealthWatchesNothing(t *testing.T) {
	var h *health.Health
	p := h.Register("a", well)
	p.Started()
	p.Stopped()
	p.Closed()
	h.Began()
	h.Stopping()
	if r := h.Check(t.Context()); r.Ready() {
		t.Errorf("%+v", r)
	}
}
