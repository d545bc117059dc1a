package mongolog

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// errorReply is a command's refusal.
func errorReply(code int) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "scripted"}}
}

// concernReply is a write that was applied and not confirmed.
func concernReply(code int) bson.D {
	return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}, {Key: "nModified", Value: 1}, {Key: "value", Value: nil}, {Key: "writeConcernError", Value: bson.D{
		{Key: "code", Value: code}, {Key: "errmsg", Value: "waiting for replication timed out"}}}}
}

// TestOutcomes is the table of what each answer to a write means.
func TestOutcomes(t *testing.T) {
	const always = 1 << 20
	tests := []struct {
		name  string
		reply bson.D
		apply bool // the server applies the write before it answers so
		times int  // how many writes are answered so
		want  error
		tries int // how many writes are sent; 0: several
	}{
		{"not primary, once", errorReply(10107), false, 1, nil, 2},
		{"not primary, always", errorReply(10107), false, always, semantic.ErrUnavailable, maxTries},
		{"not allowed", errorReply(13), false, always, semantic.ErrUnavailable, 1},
		{"document refused", errorReply(121), false, always, semantic.ErrUnavailable, 1},
		{"disk full", errorReply(14031), false, always, semantic.ErrUnavailable, 1},
		{"overloaded", errorReply(462), false, always, semantic.ErrUnavailable, 1},
		{"shutting down, applied, once", errorReply(91), true, 1, nil, 2},
		{"shutting down, not applied, once", errorReply(91), false, 1, nil, 2},
		{"shutting down, always", errorReply(91), true, always, semantic.ErrUnknown, maxTries},
		{"stepped down, applied, once", errorReply(189), true, 1, nil, 2},
		{"interrupted, always", errorReply(11602), false, always, semantic.ErrUnknown, maxTries},
		{"out of time, always", errorReply(50), false, always, semantic.ErrUnknown, maxTries},
		{"an unheard-of code, always", errorReply(987654), false, always, semantic.ErrUnknown, maxTries},
		{"not confirmed, once", concernReply(64), true, 1, nil, 2},
		{"not confirmed, always", concernReply(64), true, always, semantic.ErrUnknown, maxTries},
		{"not confirmed, the primary moved, always", concernReply(10107), true, always, semantic.ErrUnknown, maxTries},
	}
	writes := func(s *fakeServer) int {
		return len(s.sent("findAndModify")) + len(s.sent("insert")) + len(s.sent("update"))
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // the driver waits half a second before it looks at a lost server again
			onBoth(t, func(t *testing.T, s *fakeServer) {
				t.Parallel()
				l, logs := startLog(t, s)
				script := func() {
					s.with(func() {
						s.commands = nil
						left := test.times
						s.script = func(command string, _ bson.D) (bson.D, bool) {
							if command != "findAndModify" && command != "insert" && command != "update" || left == 0 {
								return nil, false
							}
							left--
							return test.reply, test.apply
						}
					})
				}
				check := func(what string, err error) {
					t.Helper()
					if !errors.Is(err, test.want) || (test.want == nil) != (err == nil) {
						t.Errorf("%s: %v, want %v", what, err, test.want)
					}
					if errors.Is(err, semantic.ErrUnknown) && errors.Is(err, semantic.ErrUnavailable) {
						t.Errorf("%s: %v is both unknown and unavailable", what, err)
					}
					if got := writes(s); got != test.tries && !(s.plain && test.apply) {
						t.Errorf("%s sent %d writes, want %d", what, got, test.tries)
					}
					signals := 0
					if err != nil {
						signals = 1
					}
					if got := logs.FilterField(zap.String("event", string(observability.LogUnavailable))).Len(); got != signals {
						t.Errorf("%s: %d signals, want %d", what, got, signals)
					}
					logs.TakeAll()
				}
				script()
				res := l.TryAcquire(t.Context(), request)
				if res.Acquired != (test.want == nil) {
					t.Errorf("acquire: %+v", res)
				}
				check("acquire", res.Err)

				s.with(func() { s.script = nil })
				other := request
				other.Key = "evt-2"
				r := l.TryAcquire(t.Context(), other).Record
				script()
				check("finalize", l.Finalize(t.Context(), r.ID, semantic.Finalization{Status: semantic.StatusCompleted}))
			})
		})
	}
}

func TestADuplicateKeyOfAnotherIndexIsNoDuplicate(t *testing.T) {
	s := startFakeServer(t, false)
	l, _ := startLog(t, s)
	s.with(func() {
		s.commands = nil
		s.script = func(string, bson.D) (bson.D, bool) {
			return duplicateReply(bson.D{{Key: "idempotency_key", Value: 1}}), false
		}
	})
	res := l.TryAcquire(t.Context(), request)
	if res.Acquired || res.Reason != semantic.ReasonError || res.Err == nil || errors.Is(res.Err, semantic.ErrUnknown) {
		t.Errorf("%+v, want reason error, and not an unknown outcome", res)
	}
	if n := len(s.sent("findAndModify")); n != 1 {
		t.Errorf("%d commands, want 1: it is an answer", n)
	}
}

func TestARecordThatCannotBeDecodedIsCorrupt(t *testing.T) {
	onBoth(t, func(t *testing.T, s *fakeServer) {
		l, _ := startLog(t, s)
		if !l.TryAcquire(t.Context(), request).Acquired {
			t.Fatal("not acquired")
		}
		s.with(func() {
			for i := range s.docs[0] {
				if s.docs[0][i].Key == "metadata" {
					s.docs[0][i].Value = "not a list"
				}
			}
		})
		res := l.TryAcquire(t.Context(), request)
		if res.Reason != semantic.ReasonError || !errors.Is(res.Err, semantic.ErrCorrupt) {
			t.Errorf("%+v, want reason error and ErrCorrupt", res)
		}
	})
}

func TestSignalsTellOutagesAndNotTheCallersOwnDoing(t *testing.T) {
	s := startFakeServer(t, false)
	l, logs := startLog(t, s)
	r := l.TryAcquire(t.Context(), request).Record
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	l.TryAcquire(cancelled, request)
	l.TryAcquire(t.Context(), semantic.IdempotencyRequest{})
	l.TryAcquire(t.Context(), request) // a duplicate
	_ = l.Finalize(t.Context(), "nonsense", semantic.Finalization{Status: semantic.StatusFailed})
	_ = l.Finalize(t.Context(), r.ID, semantic.Finalization{Status: semantic.StatusFailed})
	if logs.Len() != 0 {
		t.Errorf("signals %v, want none", logs.All())
	}

	_ = l.Finalize(t.Context(), r.ID, semantic.Finalization{Status: semantic.StatusCompleted})
	if got := logs.TakeAll(); len(got) != 1 || got[0].ContextMap()["event"] != string(observability.LogSuperseded) || got[0].ContextMap()["record_id"] != string(r.ID) {
		t.Errorf("signals %v, want one %s with the record's id", got, observability.LogSuperseded)
	}

	defer s.inject(testkit.FaultHang)()
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	res := l.TryAcquire(late, request)
	if !errors.Is(res.Err, semantic.ErrUnknown) || !errors.Is(res.Err, context.DeadlineExceeded) {
		t.Errorf("%v, want ErrUnknown and the deadline", res.Err)
	}
	got := logs.TakeAll()
	if len(got) != 1 {
		t.Fatalf("signals %v, want one", got)
	}
	fields := got[0].ContextMap()
	if fields["event"] != string(observability.LogUnavailable) || fields["operation"] != "idempotency.tryAcquire" || fields["domain"] != request.Domain || fields["outcome"] != "UNKNOWN" {
		t.Errorf("signal %v, want operation, domain and outcome", fields)
	}
}

func TestACallWithoutDeadlineEndsWithinTheTimeout(t *testing.T) {
	s := startFakeServer(t, false)
	l, _ := newLog(t, Config{URI: s.uri(), Timeout: 150 * time.Millisecond, TryTimeout: 40 * time.Millisecond})
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.inject(testkit.FaultHang)()
	began := time.Now()
	res := l.TryAcquire(context.Background(), request)
	if took := time.Since(began); took > 5*time.Second || !errors.Is(res.Err, semantic.ErrUnknown) {
		t.Errorf("%+v after %v, want ErrUnknown within the timeout", res, took)
	}
}

func TestASilentServerLeavesTimeForAnotherTry(t *testing.T) {
	s := startFakeServer(t, false)
	l, _ := newLog(t, Config{URI: s.uri(), TryTimeout: 300 * time.Millisecond})
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	silent := make(chan struct{})
	s.with(func() {
		s.before = func(command string) {
			if command == "findAndModify" {
				s.with(func() { s.before = nil })
				<-silent
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	res := l.TryAcquire(ctx, request)
	close(silent)
	if !res.Acquired || res.Record.Attempt != 1 {
		t.Errorf("%+v, want it acquired by the second try", res)
	}
}
