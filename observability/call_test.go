package observability_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/testkit/telemetry"
)

// What is not there costs nothing: no provider, no allocation.
func TestWithoutProvidersNothingIsAllocated(t *testing.T) {
	k := observability.NewKit(observability.Telemetry{}, "test")
	operation, counter := k.Operation("coord.lock", "acquire"), k.Counter("coord.lock.lost")
	timer, span := k.Timer("coord.lock.hold"), k.Internal("x")
	if err := k.Err(); err != nil {
		t.Fatal(err)
	}
	ctx, err := context.Background(), errors.New("down")
	allocated := testing.AllocsPerRun(100, func() {
		inner, call := operation.Begin(ctx, "key")
		if inner != ctx {
			t.Error("the context was changed")
		}
		call.End("unavailable", err)
		_, call = span.Begin(ctx, "key")
		call.End("unavailable", err)
		counter.Add(ctx, 1, "")
		timer.Record(ctx, time.Second, "")
	})
	if allocated != 0 {
		t.Errorf("%v allocations, want none", allocated)
	}
}

// Metrics alone are recorded without an allocation: their attributes are built once.
func TestMetricsAllocateNothing(t *testing.T) {
	recorder := telemetry.New()
	k := observability.NewKit(observability.Telemetry{Meter: recorder.Telemetry().Meter}, "test")
	operation := k.Operation("coord.lock", "acquire")
	ctx := context.Background()
	allocated := testing.AllocsPerRun(100, func() {
		_, call := operation.Begin(ctx, "key")
		call.End("acquired", nil)
	})
	if allocated != 0 {
		t.Errorf("%v allocations, want none", allocated)
	}
}

func TestAnInstrumentThatIsNotListedCannotBeMade(t *testing.T) {
	k := observability.NewKit(telemetry.New().Telemetry(), "redis")
	if k.Counter("coord.lock.unheard_of") != nil {
		t.Error("it was made")
	}
	if err := k.Err(); err == nil || !strings.Contains(err.Error(), "redis Telemetry.Meter: not usable: metric coord.lock.unheard_of is not among the instruments") {
		t.Errorf("error %v", err)
	}
}

func TestEveryInstrumentIsSaidInFull(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range observability.Instruments() {
		if seen[d.Name] {
			t.Errorf("%s is listed twice", d.Name)
		}
		seen[d.Name] = true
		if d.Unit == "" || d.Meaning == "" || (d.Kind == observability.KindHistogram) != (len(d.Buckets) > 0) {
			t.Errorf("%s: %+v: want a unit, a meaning, and buckets for a histogram only", d.Name, d)
		}
		for _, a := range d.Attributes {
			if len(a.Values) > 32 {
				t.Errorf("%s: %s has %d values", d.Name, a.Key, len(a.Values))
			}
		}
	}
}
