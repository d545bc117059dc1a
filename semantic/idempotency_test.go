package semantic_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

var sideEffect = semantic.IdempotencyRequest{OrganizationID: "org-1", Domain: "WEBHOOK", Key: "evt-1", TTLDays: 1}

// stored is the record of sideEffect.
func stored(t *testing.T, b *testkit.IdempotencyLogBackend) semantic.IdempotencyRecord {
	t.Helper()
	r, ok := b.Record(sideEffect.OrganizationID, sideEffect.Domain, sideEffect.Key)
	if !ok {
		t.Fatal("nothing is recorded")
	}
	return r
}

func TestRunOnceRunsTheEffectOnceAndRecordsItsMetadata(t *testing.T) {
	b := testkit.NewIdempotencyLogBackend(testkit.NewClock())
	runs := 0
	effect := func(_ context.Context, r semantic.IdempotencyRecord) (map[string]string, error) {
		runs++
		if r.Attempt != 1 || r.Status != semantic.StatusPending {
			t.Errorf("the effect got %+v, want its own attempt", r)
		}
		return map[string]string{"sent": "msg-1"}, nil
	}
	for i := range 3 {
		res, err := semantic.RunOnce(t.Context(), b.Client(), sideEffect, effect)
		if err != nil || res.Acquired != (i == 0) {
			t.Errorf("run %d: %+v, %v", i, res, err)
		}
		if i > 0 && (res.Reason != semantic.ReasonDuplicate || res.Record.Metadata["sent"] != "msg-1") {
			t.Errorf("run %d: %+v, want a duplicate with the metadata", i, res)
		}
	}
	if runs != 1 {
		t.Errorf("the effect ran %d times, want once", runs)
	}
}

func TestRunOnceRecordsHowAnEffectFailed(t *testing.T) {
	broken := errors.New("provider refused")
	tests := map[string]func(context.Context, semantic.IdempotencyRecord) (map[string]string, error){
		"error": func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
			return map[string]string{"ignored": "yes"}, broken
		},
		"panic": func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) { panic(broken) },
		"goexit": func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
			runtime.Goexit()
			return nil, nil
		},
	}
	for name, effect := range tests {
		t.Run(name, func(t *testing.T) {
			b := testkit.NewIdempotencyLogBackend(testkit.NewClock())
			var err error
			var recovered any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recovered = recover() }()
				_, err = semantic.RunOnce(t.Context(), b.Client(), sideEffect, effect)
			}()
			<-done
			if name == "error" && !errors.Is(err, broken) {
				t.Errorf("error %v, want the effect's", err)
			}
			if name == "panic" && recovered != any(broken) {
				t.Errorf("recovered %v, want the effect's panic to go on", recovered)
			}
			if r := stored(t, b); r.Status != semantic.StatusFailed || len(r.Metadata) != 0 {
				t.Errorf("record %+v, want FAILED without metadata", r)
			}
		})
	}
}

func TestRunOnceDoesNotRunTheEffectWhenTheLogCannotSay(t *testing.T) {
	b := testkit.NewIdempotencyLogBackend(testkit.NewClock())
	b.Inject(testkit.FaultDown)
	res, err := semantic.RunOnce(t.Context(), b.Client(), sideEffect, func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
		t.Error("the effect ran")
		return nil, nil
	})
	if res.Acquired || !errors.Is(err, semantic.ErrUnavailable) {
		t.Errorf("%+v, %v, want ErrUnavailable", res, err)
	}
}

// powertools-lambda-typescript#2944: the effect is done, saving that failed: another
// error than the effect's, and nothing that would run it again.
func TestRunOnceTellsAnEffectDoneFromALogThatDoesNotKnow(t *testing.T) {
	broken := errors.New("provider refused")
	for _, effectErr := range []error{nil, broken} {
		b := testkit.NewIdempotencyLogBackend(testkit.NewClock())
		runs := 0
		heal := func() {}
		effect := func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
			runs++
			heal = b.Inject(testkit.FaultDown)
			return nil, effectErr
		}
		res, err := semantic.RunOnce(t.Context(), b.Client(), sideEffect, effect)
		if !res.Acquired || !errors.Is(err, semantic.ErrUnavailable) || !errors.Is(err, effectErr) && effectErr != nil {
			t.Errorf("%+v, %v, want it acquired, the finalize's error, and the effect's %v", res, err, effectErr)
		}
		heal()
		res, err = semantic.RunOnce(t.Context(), b.Client(), sideEffect, effect)
		if res.Reason != semantic.ReasonDuplicate || res.Record.Status != semantic.StatusPending || err != nil || runs != 1 {
			t.Errorf("again: %+v, %v, %d runs, want a PENDING duplicate and one run", res, err, runs)
		}
	}
}

func TestRunOnceFinalizesAfterACancel(t *testing.T) {
	b := testkit.NewIdempotencyLogBackend(testkit.NewClock())
	ctx, cancel := context.WithCancel(t.Context())
	_, err := semantic.RunOnce(ctx, b.Client(), sideEffect, func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
		cancel()
		return nil, nil
	})
	if r := stored(t, b); err != nil || r.Status != semantic.StatusCompleted {
		t.Errorf("record %+v, %v, want COMPLETED", r, err)
	}
}

func TestRunOnceTellsASupersededAttempt(t *testing.T) {
	clock := testkit.NewClock()
	b := testkit.NewIdempotencyLogBackend(clock)
	takeover := sideEffect
	takeover.TakeOverPendingAfter = semantic.MinTTL
	_, err := semantic.RunOnce(t.Context(), b.Client(), sideEffect, func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
		clock.Advance(semantic.MinTTL)
		if res := b.Client().TryAcquire(t.Context(), takeover); !res.Acquired || !res.Record.TakenOver {
			t.Errorf("takeover %+v", res)
		}
		return nil, nil
	})
	if !errors.Is(err, semantic.ErrSuperseded) {
		t.Errorf("error %v, want ErrSuperseded", err)
	}
	if r := stored(t, b); r.Status != semantic.StatusPending || r.Attempt != 2 {
		t.Errorf("record %+v, want the successor's, PENDING", r)
	}
}

func TestRunOnceRecordsAnEffectWhoseMetadataCannotBeKept(t *testing.T) {
	b := testkit.NewIdempotencyLogBackend(testkit.NewClock())
	_, err := semantic.RunOnce(t.Context(), b.Client(), sideEffect, func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
		return map[string]string{"k": strings.Repeat("v", semantic.MaxMetadataBytes)}, nil
	})
	if !errors.Is(err, semantic.ErrInvalidArgument) {
		t.Errorf("error %v, want ErrInvalidArgument", err)
	}
	if r := stored(t, b); r.Status != semantic.StatusCompleted || len(r.Metadata) != 0 {
		t.Errorf("record %+v, want COMPLETED without metadata: the effect is done", r)
	}
}

func TestRecordCloneSharesNothing(t *testing.T) {
	r := semantic.IdempotencyRecord{ID: "1", Metadata: map[string]string{"k": "v"}}
	c := r.Clone()
	c.Metadata["k"] = "changed"
	if !maps.Equal(r.Metadata, map[string]string{"k": "v"}) {
		t.Errorf("the original became %v", r.Metadata)
	}
}

// A webhook is handled once, however often the provider delivers it.
func ExampleRunOnce() {
	var log semantic.IdempotencyLog = testkit.NewIdempotencyLog(nil)
	for range 2 {
		res, err := semantic.RunOnce(context.Background(), log, semantic.IdempotencyRequest{
			OrganizationID: "org-1", Domain: "STRIPE_WEBHOOK", Key: "evt_1", TTLDays: 30,
		}, func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
			return map[string]string{"invoice": "in_7"}, nil
		})
		fmt.Println(res.Acquired, res.Reason, res.Record.Metadata["invoice"], err)
	}
	// Output:
	// true   <nil>
	// false duplicate in_7 <nil>
}
