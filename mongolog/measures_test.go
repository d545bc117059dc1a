package mongolog

import (
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/telemetry"
)

func TestWhatALogMeasures(t *testing.T) {
	server, recorder := startFakeServer(t, false), telemetry.New()
	l, _ := newLog(t, Config{URI: server.uri(), TryTimeout: time.Second, Timeout: 2 * time.Second, Telemetry: recorder.Telemetry()})
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	finalized := semantic.Finalization{Status: semantic.StatusCompleted}
	request := request
	request.Fingerprint = "one"
	acquired := l.TryAcquire(t.Context(), request)
	if !acquired.Acquired {
		t.Fatalf("%+v", acquired)
	}
	l.TryAcquire(t.Context(), request)
	other := request
	other.Fingerprint = "other"
	l.TryAcquire(t.Context(), other)
	_ = l.Finalize(t.Context(), acquired.Record.ID, finalized)
	gone := acquired.Record.ID[:len(acquired.Record.ID)-1] + "A"
	if gone == acquired.Record.ID {
		gone = acquired.Record.ID[:len(acquired.Record.ID)-1] + "B"
	}
	superseded := l.Finalize(t.Context(), gone, finalized)
	l.TryAcquire(t.Context(), semantic.IdempotencyRequest{})
	heal := server.inject(testkit.FaultDown)
	l.TryAcquire(t.Context(), request)
	heal()

	want := []string{"try_acquire acquired", "try_acquire duplicate", "try_acquire conflict", "finalize finalized", "try_acquire invalid", "try_acquire unknown"}
	var metrics, spans []string
	if superseded != nil && strings.Contains(superseded.Error(), "superseded") {
		want = append(want, "finalize superseded")
	} else {
		t.Errorf("finalize of an attempt that is not there: %v", superseded)
	}
	for _, w := range want {
		metrics = append(metrics, "coord.idempotency_log.calls "+w+" 1", "coord.idempotency_log.duration "+w+" 1")
		status := "Unset"
		if strings.HasSuffix(w, "unknown") {
			status = "Error"
		}
		spans = append(spans, "coord.idempotency_log "+strings.Replace(w, " ", ": ", 1)+" "+status)
	}
	recorder.Expect(t, metrics...)
	recorder.ExpectSpans(t, spans...)
}

func TestABrokenProviderFailsTheConstruction(t *testing.T) {
	_, err := New(Config{URI: "mongodb://localhost/test", Telemetry: observability.Telemetry{Meter: telemetry.Broken{}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "mongo Telemetry.Meter: not usable") {
		t.Errorf("error %v", err)
	}
}
