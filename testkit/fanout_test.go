package testkit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// fanoutDouble is the double as a backend of the suite; wrap breaks it.
func fanoutDouble(wrap func(b *testkit.FanoutBackend, f *testkit.Fanout) testkit.FanoutQueue) testkit.Backend[testkit.FanoutQueue] {
	clock := testkit.NewClock()
	var backend *testkit.FanoutBackend
	return testkit.Backend[testkit.FanoutQueue]{
		New: func(_ testkit.T, n int) []testkit.FanoutQueue {
			backend = testkit.NewFanoutBackend(clock)
			fs := make([]testkit.FanoutQueue, n)
			for i := range fs {
				if fs[i] = backend.Client(); wrap != nil {
					fs[i] = wrap(backend, backend.Client())
				}
			}
			return fs
		},
		Advance: clock.Advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	}
}

func TestFanoutDouble(t *testing.T) { testkit.RunFanout(t, fanoutDouble(nil)) }

func TestFanoutDouble_refuses_what_it_is_told(t *testing.T) {
	f := testkit.NewFanout(nil)
	f.Refuse(func(_ string, r semantic.FanoutRecord) string {
		if r.RecordID == "bad" {
			return "KmsDisabled"
		}
		return ""
	})
	report, err := f.Enqueue(t.Context(), "d", func(yield func(semantic.FanoutRecord, error) bool) {
		_ = yield(semantic.FanoutRecord{OrganizationID: "o", RecordID: "bad"}, nil) && yield(semantic.FanoutRecord{OrganizationID: "o", RecordID: "good"}, nil)
	})
	if err != nil || report.Enqueued != 1 || report.Failed != 1 || report.Failures[0].Code != "KmsDisabled" {
		t.Errorf("report %+v, %v", report, err)
	}
	if got := f.Queued(); len(got) != 1 || got[0].Record.RecordID != "good" {
		t.Errorf("queued: %v", got)
	}
}

func TestFanoutDouble_forgets_a_record_after_five_minutes(t *testing.T) {
	clock := testkit.NewClock()
	f := testkit.NewFanout(clock)
	send := func() {
		if _, err := f.Enqueue(t.Context(), "d", func(yield func(semantic.FanoutRecord, error) bool) {
			yield(semantic.FanoutRecord{OrganizationID: "o", RecordID: "r"}, nil)
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []int{1, 1, 2} {
		send()
		if got := len(f.Queued()); got != want {
			t.Errorf("send %d: %d queued, want %d", i+1, got, want)
		}
		clock.Advance(3 * time.Minute)
	}
}

func ExampleNewFanout() {
	fanout := testkit.NewFanout(testkit.NewClock())
	report, _ := fanout.Enqueue(context.Background(), "media", func(yield func(semantic.FanoutRecord, error) bool) {
		yield(semantic.FanoutRecord{OrganizationID: "acme", RecordID: "42", Version: "1", Body: []byte("resize")}, nil)
	})
	fmt.Println(report.Enqueued, string(fanout.Queued()[0].Record.Body))
	// Output: 1 resize
}
