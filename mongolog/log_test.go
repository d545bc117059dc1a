package mongolog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onBoth runs f on a server with pipelines and on one without.
func onBoth(t *testing.T, f func(t *testing.T, s *fakeServer)) {
	for name, plain := range map[string]bool{"pipelines": false, "plain": true} {
		t.Run(name, func(t *testing.T) { f(t, startFakeServer(t, plain)) })
	}
}

// newLog returns a log that is not started and closes with the test.
func newLog(t testing.TB, config Config) (*Log, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	l, err := New(config, observability.New(zap.New(testkit.RecordSignals(core))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l, logs
}

func startLog(t testing.TB, s *fakeServer) (*Log, *observer.ObservedLogs) {
	t.Helper()
	l, logs := newLog(t, Config{URI: s.uri(), TryTimeout: 5 * time.Second})
	if err := l.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	return l, logs
}

var request = semantic.IdempotencyRequest{OrganizationID: "org-1", Domain: "WEBHOOK", Key: "evt-1", TTLDays: 2}

func TestLogKeepsTheContract(t *testing.T) {
	for name, plain := range map[string]bool{"pipelines": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s *fakeServer
			var logs []*Log
			testkit.RunIdempotencyLog(t, testkit.Backend[semantic.IdempotencyLog]{
				New: func(_ testkit.T, n int) (clients []semantic.IdempotencyLog) {
					s, logs = startFakeServer(t, plain), nil
					for range n {
						l, _ := startLog(t, s)
						logs, clients = append(logs, l), append(clients, l)
					}
					return clients
				},
				Advance: func(d time.Duration) { s.clock.Advance(d) },
				Fault: func(_ testkit.T, f testkit.Fault) (heal func()) {
					heal = s.inject(f)
					if f == testkit.FaultDown {
						for _, l := range logs {
							untilNoticed(t, l)
						}
					}
					return heal
				},
			})
		})
	}
}

// untilNoticed waits until the log's pool knows that its connections are gone: a call
// on one that was just cut is rightly unknown.
func untilNoticed(t testing.TB, l *Log) {
	t.Helper()
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := l.Finalize(ctx, "000000000000000000000000.AAAAAAAAAAAAAAAAAAAAAAAAAA", semantic.Finalization{Status: semantic.StatusFailed})
		cancel()
		if errors.Is(err, semantic.ErrUnavailable) {
			return
		}
	}
	t.Fatal("the outage is not noticed")
}

func TestRoundTripsAreAsDocumented(t *testing.T) {
	want := map[string]map[bool][]string{ // by step, then by whether the server is plain
		"new":       {false: {"findAndModify"}, true: {"insert"}},
		"duplicate": {false: {"findAndModify"}, true: {"insert", "find"}},
		"finalize":  {false: {"update"}, true: {"update"}},
		"again":     {false: {"update", "find"}, true: {"update", "find"}},
		"retry":     {false: {"findAndModify"}, true: {"insert", "find", "findAndModify"}},
	}
	onBoth(t, func(t *testing.T, s *fakeServer) {
		l, _ := startLog(t, s)
		var id semantic.RecordID
		retry := request
		retry.RetryFailed = true
		for _, step := range []struct {
			name string
			run  func()
		}{
			{"new", func() { id = l.TryAcquire(t.Context(), request).Record.ID }},
			{"duplicate", func() { l.TryAcquire(t.Context(), request) }},
			{"finalize", func() { l.Finalize(t.Context(), id, semantic.Finalization{Status: semantic.StatusFailed}) }},
			{"again", func() { l.Finalize(t.Context(), id, semantic.Finalization{Status: semantic.StatusFailed}) }},
			{"retry", func() { l.TryAcquire(t.Context(), retry) }},
		} {
			s.with(func() { s.commands = nil })
			step.run()
			var got []string
			s.with(func() {
				for _, c := range s.commands {
					got = append(got, c[0].Key)
				}
			})
			if !slices.Equal(got, want[step.name][s.plain]) {
				t.Errorf("%s sent %v, want %v", step.name, got, want[step.name][s.plain])
			}
		}
	})
}

func TestWritesAndReadsAreOfAMajority(t *testing.T) {
	onBoth(t, func(t *testing.T, s *fakeServer) {
		// What the URI asks for otherwise is overridden.
		l, _ := newLog(t, Config{URI: s.uri() + "?w=1&readConcernLevel=local&readPreference=secondaryPreferred&retryWrites=true"})
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.with(func() { s.commands = nil })
		res := l.TryAcquire(t.Context(), request)
		l.TryAcquire(t.Context(), request)
		for range 2 {
			if err := l.Finalize(t.Context(), res.Record.ID, semantic.Finalization{Status: semantic.StatusCompleted}); err != nil {
				t.Error(err)
			}
		}
		s.with(func() {
			for _, c := range s.commands {
				concern, want := "writeConcern", bson.D{{Key: "w", Value: "majority"}}
				if c[0].Key == "find" {
					concern, want = "readConcern", bson.D{{Key: "level", Value: "majority"}}
				}
				if !equal(field(c, concern), want) {
					t.Errorf("%s has %s %v, want majority", c[0].Key, concern, field(c, concern))
				}
				if field(c, "txnNumber") != nil {
					t.Errorf("%s is a retryable write of the driver", c[0].Key)
				}
			}
		})
	})
}

// go-mgo/mgo#313, beanie#1350 and its PR#1353: the rival writes exactly between the
// look and the write.
func TestARivalBetweenTwoStepsLeavesOneWinner(t *testing.T) {
	for _, step := range []string{"insert", "find", "findAndModify"} {
		t.Run("before "+step, func(t *testing.T) {
			s := startFakeServer(t, true)
			mine, _ := startLog(t, s)
			rival, _ := startLog(t, s)
			retry := request
			retry.RetryFailed = true
			first := mine.TryAcquire(t.Context(), request)
			if err := mine.Finalize(t.Context(), first.Record.ID, semantic.Finalization{Status: semantic.StatusFailed}); err != nil {
				t.Fatal(err)
			}
			var theirs semantic.AcquireResult
			s.with(func() {
				s.before = func(command string) {
					if command != step {
						return
					}
					s.with(func() { s.before = nil })
					theirs = rival.TryAcquire(t.Context(), retry)
				}
			})
			res := mine.TryAcquire(t.Context(), retry)
			if !theirs.Acquired || res.Acquired || res.Reason != semantic.ReasonDuplicate || res.Record.ID != theirs.Record.ID {
				t.Errorf("rival %+v, then %+v, want the rival to win and a duplicate of it", theirs, res)
			}
		})
	}
}

// beanie PR#1353 with the garbage collector as the rival.
func TestARecordThatVanishesBetweenTwoStepsIsInsertedOnceMore(t *testing.T) {
	for _, step := range []string{"find", "findAndModify"} {
		s := startFakeServer(t, true)
		l, _ := startLog(t, s)
		if !l.TryAcquire(t.Context(), request).Acquired {
			t.Fatal("not acquired")
		}
		s.clock.Advance(3 * 24 * time.Hour)
		s.with(func() {
			s.before = func(command string) {
				if command == step {
					s.with(func() { s.docs, s.before = nil, nil })
				}
			}
		})
		res := l.TryAcquire(t.Context(), request)
		if !res.Acquired || res.Record.Attempt != 1 {
			t.Errorf("deleted before %s: %+v, want it acquired as attempt 1", step, res)
		}
	}
}

func TestARivalThatAlwaysChangesTheRecordIsAnErrorAtLast(t *testing.T) {
	s := startFakeServer(t, true)
	l, _ := startLog(t, s)
	if !l.TryAcquire(t.Context(), request).Acquired {
		t.Fatal("not acquired")
	}
	s.with(func() {
		s.before = func(command string) { // the record is gone at each look, and there at each insert
			s.with(func() {
				if command == "find" {
					s.docs[0][1].Value = "elsewhere"
				} else {
					s.docs[0][1].Value = request.OrganizationID
				}
			})
		}
	})
	res := l.TryAcquire(t.Context(), request)
	if res.Reason != semantic.ReasonError || !errors.Is(res.Err, semantic.ErrUnavailable) {
		t.Errorf("%+v, want reason error and ErrUnavailable", res)
	}
}

func TestConcurrentInsertsThatTheServerReportsAreLookedAtAgain(t *testing.T) {
	// mongoose#7183: a concurrent upsert gives E11000 where the server does not retry.
	s := startFakeServer(t, false)
	l, _ := startLog(t, s)
	rival, _ := startLog(t, s)
	theirs := rival.TryAcquire(t.Context(), request)
	s.with(func() {
		s.script = func(command string, _ bson.D) (bson.D, bool) {
			s.script = nil
			return duplicateReply(bson.D{{Key: "organization_id", Value: 1}, {Key: "domain", Value: 1}, {Key: "idempotency_key", Value: 1}}), false
		}
	})
	res := l.TryAcquire(t.Context(), request)
	if res.Reason != semantic.ReasonDuplicate || res.Record.ID != theirs.Record.ID {
		t.Errorf("%+v, want a duplicate of %s", res, theirs.Record.ID)
	}
}

func duplicateReply(keys bson.D) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 11000}, {Key: "errmsg", Value: "E11000 duplicate key error"}, {Key: "keyPattern", Value: keys}}
}

func TestALogOutsideItsLifeSaysSo(t *testing.T) {
	s := startFakeServer(t, false)
	l, _ := newLog(t, Config{URI: s.uri()})
	if res := l.TryAcquire(t.Context(), request); !errors.Is(res.Err, semantic.ErrUnavailable) {
		t.Errorf("before start: %+v, want ErrUnavailable", res)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err == nil {
		t.Error("a second start is no error")
	}
	for range 2 {
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if err := l.Start(t.Context()); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("start after close: %v, want ErrClosed", err)
	}
	never, _ := newLog(t, Config{URI: s.uri()})
	if err := never.Close(t.Context()); err != nil {
		t.Errorf("close of a log that never started: %v", err)
	}
}

func TestCloseCutsOffCallsWhenItsContextEnds(t *testing.T) {
	s := startFakeServer(t, false)
	l, _ := startLog(t, s)
	asked := make(chan struct{})
	release := make(chan struct{})
	s.with(func() {
		s.before = func(command string) {
			if command == "findAndModify" {
				s.with(func() { s.before = nil })
				close(asked)
				<-release
			}
		}
	})
	ended := make(chan semantic.AcquireResult, 1)
	go func() { ended <- l.TryAcquire(context.WithoutCancel(t.Context()), request) }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	closeErr := l.Close(ctx)
	select {
	case res := <-ended:
		if !errors.Is(res.Err, semantic.ErrUnknown) && !errors.Is(res.Err, semantic.ErrClosed) {
			t.Errorf("the call in flight: %+v, want ErrUnknown", res)
		}
	case <-time.After(10 * time.Second):
		t.Error("the call in flight goes on after close")
	}
	close(release)
	t.Logf("close: %v", closeErr)
}

func TestStartFailsOnAServerThatIsNotThereAndCanBeRepeated(t *testing.T) {
	s := startFakeServer(t, false)
	heal := s.inject(testkit.FaultDown)
	l, logs := newLog(t, Config{URI: "mongodb://user:s3cret@" + s.listener.Addr().String() + "/test?connectTimeoutMS=200", TryTimeout: 300 * time.Millisecond})
	err := l.Start(t.Context())
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("start: %v, want an error without the password", err)
	}
	heal()
	for _, e := range logs.All() {
		for _, f := range e.ContextMap() {
			if text, ok := f.(string); ok && strings.Contains(text, "s3cret") {
				t.Errorf("a signal has the password: %v", e)
			}
		}
	}
	if logs.FilterField(zap.String("event", string(observability.LogUnavailable))).Len() != 1 {
		t.Errorf("signals %v, want one %s", logs.All(), observability.LogUnavailable)
	}

	l, _ = newLog(t, Config{URI: s.uri(), TryTimeout: 300 * time.Millisecond})
	heal = s.inject(testkit.FaultDown)
	if err := l.Start(t.Context()); err == nil {
		t.Error("start on a server that is down is no error")
	}
	heal()
	if err := l.Start(t.Context()); err != nil {
		t.Errorf("start after the outage: %v", err)
	}
}
