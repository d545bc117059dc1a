package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestTheNightlyReportIsWrittenOnce(t *testing.T) {
	backend := testkit.NewLockBackend(testkit.NewClock())
	written := 0
	for _, replica := range []string{"a", "b", "c"} {
		reports := NewReports(backend.Client(replica), func(context.Context) error { written++; return nil })
		if err := reports.Nightly(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if written != 1 {
		t.Errorf("written %d times", written)
	}
}

func TestReindexAnswers204Or500(t *testing.T) {
	for want, err := range map[int]error{http.StatusNoContent: nil, http.StatusInternalServerError: errors.New("broken")} {
		w := httptest.NewRecorder()
		NewAdmin(testkit.NewDistributedLock(nil), reindexing(err)).Reindex(w, httptest.NewRequest(http.MethodPost, "/", nil))
		if w.Code != want {
			t.Errorf("reindex that returns %v: %d, want %d", err, w.Code, want)
		}
	}
}

func TestOnlyTheLastOwnerOfASessionSaysThatItIsOffline(t *testing.T) {
	backend := testkit.NewLeaseBackend(testkit.NewClock())
	said := ""
	on := func(replica string) *Sessions {
		return NewSessions(backend.Client(), replica, func(context.Context, string) { said += replica })
	}
	a, b := on("a"), on("b")
	if previous, err := a.Connected(t.Context(), "s"); previous != "" || err != nil {
		t.Fatalf("first connect: %q, %v", previous, err)
	}
	if previous, err := b.Connected(t.Context(), "s"); previous != "a" || err != nil {
		t.Fatalf("reconnect: %q, %v", previous, err)
	}
	if mine, err := a.Alive(t.Context(), "s"); mine || err != nil {
		t.Errorf("the former owner's heartbeat: %v, %v", mine, err)
	}
	if a.Disconnected(t.Context(), "s"); said != "" {
		t.Errorf("%q said it, though the user is on b", said)
	}
	heal := backend.Inject(testkit.FaultDown)
	if b.Disconnected(t.Context(), "s"); said != "" {
		t.Errorf("%q said it without knowing", said)
	}
	heal()
	if b.Disconnected(t.Context(), "s"); said != "b" {
		t.Errorf("%q said it, want b", said)
	}
}

func TestAPartitionIsWorkedByOne(t *testing.T) {
	backend := testkit.NewLeaseBackend(testkit.NewClock())
	held, err := RunPartition(t.Context(), backend.Client(), "a", func(ctx context.Context) error {
		if held, err := RunPartition(ctx, backend.Client(), "b", nil); held || err != nil {
			t.Errorf("beside the holder: %v, %v", held, err)
		}
		return nil
	})
	if !held || err != nil {
		t.Errorf("held %v, %v", held, err)
	}
}

func TestUsersAreLoadedOnceAndAlsoInAnOutage(t *testing.T) {
	backend := testkit.NewCacheBackend(testkit.NewClock())
	loads := 0
	users, err := NewUsers(backend.Client("a"), func(_ context.Context, id string) (User, error) {
		if loads++; id == "nobody" {
			return User{}, sql.ErrNoRows
		}
		return User{ID: id, Name: fmt.Sprint("name ", loads)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := func(id, name string, missing bool, after int) {
		t.Helper()
		user, err := users.Get(t.Context(), id)
		if user.Name != name || errors.Is(err, semantic.ErrAbsent) != missing || (err != nil && !missing) || loads != after {
			t.Errorf("%+v, %v after %d loads, want %q after %d", user, err, loads, name, after)
		}
	}
	want("u", "name 1", false, 1)
	want("u", "name 1", false, 1)
	if err := users.Renamed(t.Context(), "u"); err != nil {
		t.Error(err)
	}
	want("u", "name 2", false, 2)
	want("nobody", "", true, 3)
	want("nobody", "", true, 3)
	defer backend.Inject(testkit.FaultDown)()
	want("u", "name 4", false, 4)
}

func TestTheBudgetOfTheThirdPartyIsShared(t *testing.T) {
	backend := testkit.NewLimiterBackend(testkit.NewClock())
	a, b := backend.Client("a"), backend.Client("b")
	for range 99 {
		if err := CallCRM(t.Context(), a, reindexing(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := TryCRM(t.Context(), b); !d.Allowed || d.Remaining != 0 || err != nil {
		t.Errorf("the hundredth: %+v, %v", d, err)
	}
	if d, err := TryCRM(t.Context(), a); d.Allowed || d.RetryAfter <= 0 || err != nil {
		t.Errorf("one too many: %+v, %v", d, err)
	}
}

func TestATenantAboveItsBudgetIsAnswered429(t *testing.T) {
	backend := testkit.NewLimiterBackend(testkit.NewClock())
	handler, err := Limited(backend.Client("a"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	code := 0
	for range 51 {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Tenant", "acme")
		handler.ServeHTTP(w, r)
		code = w.Code
	}
	if code != http.StatusTooManyRequests {
		t.Errorf("the 51st request: %d, want 429", code)
	}
}

func TestAPriceIsForgottenEverywhere(t *testing.T) {
	backend := testkit.NewBroadcastBackend(nil)
	a, b := NewPrices(backend.Client("a")), NewPrices(backend.Client("b"))
	for _, p := range []*Prices{a, b} {
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		p.known.Store("book", 7)
	}
	if err := a.Changed(t.Context(), "book"); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		_, ina := a.known.Load("book")
		_, inb := b.known.Load("book")
		if !ina && !inb {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Error("the old price is still known")
}

func TestAnEventIsBookedOnce(t *testing.T) {
	log := testkit.NewIdempotencyLog(testkit.NewClock())
	booked := 0
	fail := errors.New("broken")
	handle := func() int {
		w := httptest.NewRecorder()
		Webhook(log, "acme", "evt_1", func(context.Context) error { booked++; return fail })(w, httptest.NewRequest(http.MethodPost, "/", nil))
		return w.Code
	}
	if code := handle(); code != http.StatusServiceUnavailable {
		t.Errorf("a booking that fails: %d, want 503", code)
	}
	fail = nil
	for range 3 {
		if code := handle(); code != http.StatusOK {
			t.Errorf("event: %d, want 200", code)
		}
	}
	if booked != 2 {
		t.Errorf("booked %d times, want the failed and the good one", booked)
	}
}

func TestRowsEndWithTheirError(t *testing.T) {
	broken := errors.New("broken")
	n := 0
	var last error
	for _, err := range Rows(func() (string, time.Time, bool, error) {
		if n++; n == 3 {
			return "", time.Time{}, false, broken
		}
		return fmt.Sprint(n), time.Unix(0, 0), true, nil
	}) {
		last = err
	}
	if n != 3 || !errors.Is(last, broken) {
		t.Errorf("%d rows, %v", n, last)
	}
}

func TestEveryOutcomeHasItsAdvice(t *testing.T) {
	lost := &semantic.OutcomeError{Operation: "o", Outcome: semantic.OutcomeUnknown, Cause: context.DeadlineExceeded}
	down := &semantic.OutcomeError{Operation: "o", Outcome: semantic.OutcomeUnavailable, Cause: context.DeadlineExceeded}
	seen := map[string]bool{}
	for _, err := range []error{nil, &semantic.ArgumentError{}, lost, down, semantic.ErrClosed} {
		seen[Advice(err)] = true
	}
	if len(seen) != 5 {
		t.Errorf("advice: %v", seen)
	}
}

func TestServicesWorkWithoutFx(t *testing.T) {
	if err := WithoutFx(t.Context(), testkit.StartEmbeddedRedis(t).URL(), nil); err != nil {
		t.Error(err)
	}
}
