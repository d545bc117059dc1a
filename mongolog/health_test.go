package mongolog

import (
	"context"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/testkit"
)

func TestHealthFollowsTheServer(t *testing.T) {
	server, h := startFakeServer(t, false), health.New()
	l, _ := newLog(t, Config{URI: server.uri(), TryTimeout: time.Second, Health: h})
	want := func(when string, state health.State) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			f, ok := h.Check(t.Context()).Part("mongodb")
			if ok && f.State == state && (state != health.Failing || f.Err != nil && f.Cause != "") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v, want %s", when, f, state)
			}
		}
	}
	want("before the start", health.NotStarted)
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("after the start", health.OK)
	for _, fault := range []testkit.Fault{testkit.FaultDown, testkit.FaultHang} {
		heal := server.inject(fault)
		began := time.Now()
		h.Check(t.Context())
		if took := time.Since(began); took > health.Budget+1500*time.Millisecond {
			t.Errorf("%s: a check took %v", fault, took)
		}
		want("in an outage", health.Failing)
		heal()
		want("after it", health.OK)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	want("after close", health.Closed)
}
