package recipes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// What docs/testing.md shows.

func TestReindexAnswers503InAnOutage(t *testing.T) {
	var admin *Admin
	var world *testkit.World
	app := fxtest.New(t, testkit.Module, fx.Supply(reindexing(nil)), fx.Provide(NewAdmin), fx.Populate(&admin, &world))
	app.RequireStart()
	defer app.RequireStop()

	heal := world.Inject(testkit.FaultDown)
	w := httptest.NewRecorder()
	admin.Reindex(w, httptest.NewRequest(http.MethodPost, "/reindex", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("in an outage: %d, want 503", w.Code)
	}
	heal()
}

func TestReindexAnswers409WhileItRunsElsewhere(t *testing.T) {
	backend := testkit.NewLockBackend(nil)
	here, there := backend.Client("here"), backend.Client("there")
	claim, err := there.Acquire(t.Context(), "reindex", time.Minute)
	if err != nil || !claim.Acquired {
		t.Fatalf("acquire: %+v, %v", claim, err)
	}
	w := httptest.NewRecorder()
	NewAdmin(here, reindexing(nil)).Reindex(w, httptest.NewRequest(http.MethodPost, "/reindex", nil))
	if w.Code != http.StatusConflict {
		t.Errorf("while it runs elsewhere: %d, want 409", w.Code)
	}
}

func TestAReportThatOutlivesItsLockIsTold(t *testing.T) {
	clock := testkit.NewClock()
	lock := testkit.NewDistributedLock(clock)
	var cause error
	err := NewReports(lock, func(ctx context.Context) error {
		clock.Advance(time.Hour) // the process was paused
		<-ctx.Done()
		cause = context.Cause(ctx)
		return cause
	}).Nightly(t.Context())
	if cause != semantic.ErrLockLost || err == nil {
		t.Errorf("cause %v, error %v, want ErrLockLost", cause, err)
	}
}

func TestMyLockKeepsTheContract(t *testing.T) {
	clock := testkit.NewClock()
	var backend *testkit.LockBackend
	testkit.RunDistributedLock(t, testkit.Backend[semantic.DistributedLock]{
		New: func(_ testkit.T, n int) (replicas []semantic.DistributedLock) {
			backend = testkit.NewLockBackend(clock) // yours
			for range n {
				replicas = append(replicas, backend.Client("replica"))
			}
			return replicas
		},
		Advance: clock.Advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	})
}

func TestTheMediaServiceHandlesWhatItsScanFinds(t *testing.T) {
	handled := make(chan string, 1)
	media := &Media{
		pending: func(context.Context) semantic.Records {
			return func(yield func(semantic.FanoutRecord, error) bool) {
				yield(semantic.FanoutRecord{OrganizationID: "acme", RecordID: "42"}, nil)
			}
		},
		resize: func(_ context.Context, organization, id string) error {
			handled <- organization + "/" + id
			return nil
		},
	}
	var runner *cronfx.Runner
	app := fxtest.New(t, testkit.Module, fx.Supply(media), fx.Provide(zap.NewNop), jobs(), fx.Populate(&runner))
	app.RequireStart()
	defer app.RequireStop()

	if _, err := runner.Trigger(t.Context(), "pending-media"); err != nil {
		t.Fatal(err)
	}
	if got := <-handled; got != "acme/42" {
		t.Errorf("handled %q", got)
	}
}

// reindexing is a reindex that ends with err.
func reindexing(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}
