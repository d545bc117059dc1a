package sqsfanout_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// request is what the host asks of the log for a record.
func request(rec semantic.FanoutRecord) semantic.IdempotencyRequest {
	return semantic.IdempotencyRequest{OrganizationID: rec.OrganizationID, Domain: "d", Key: "1:" + rec.RecordID + ":" + rec.Version, TTLDays: 15}
}

func TestConsumer_record_handled_before_is_deleted_unhandled(t *testing.T) {
	r := newRig(t)
	log := r.log.Client()
	got := log.TryAcquire(t.Context(), request(record("a")))
	if !got.Acquired {
		t.Fatal(got)
	}
	if err := log.Finalize(t.Context(), got.Record.ID, semantic.Finalization{Status: semantic.StatusCompleted}); err != nil {
		t.Fatal(err)
	}
	r.enqueue(record("a"))
	r.start(consumer(func(context.Context, semantic.FanoutRecord) error { t.Error("handled again"); return nil }))
	r.pass("deleted", r.empty)
}

// The same record and version sent again after the queue's own memory of five minutes.
// asynq#369: the memory of a success outlives any lock.
func TestConsumer_recognises_a_record_that_the_queue_no_longer_does(t *testing.T) {
	r := newRig(t)
	var done journal
	r.start(consumer(func(_ context.Context, rec semantic.FanoutRecord) error { done.add(rec.RecordID); return nil }))
	for range 3 {
		r.enqueue(record("a"))
		r.pass("deleted", r.empty)
		r.clock.Advance(6 * time.Minute)
	}
	if done.len() != 1 {
		t.Errorf("handled %d times", done.len())
	}
	second := record("a")
	second.Version = "2"
	r.enqueue(second)
	r.pass("the new version is handled", func() bool { return done.len() == 2 && r.empty() })
}

// powertools-lambda-python#8049: an attempt that died may have had its effect, so the
// one that takes its place waits for a chosen time and is told.
func TestConsumer_takes_over_a_dead_attempt_after_its_time_and_says_so(t *testing.T) {
	r := newRig(t)
	if got := r.log.Client().TryAcquire(t.Context(), request(record("a"))); !got.Acquired {
		t.Fatal(got)
	}
	r.enqueue(record("a"))
	begun := r.clock.Now()
	var handledAt atomic.Pointer[time.Time]
	c := consumer(func(ctx context.Context, _ semantic.FanoutRecord) error {
		d, _ := sqsfanout.DeliveryFromContext(ctx)
		if !d.Attempt.TakenOver || d.Attempt.Attempt != 2 || d.Receives > 2 {
			t.Errorf("delivery is %+v", d)
		}
		now := r.clock.Now()
		handledAt.Store(&now)
		return nil
	})
	c.TakeOverPendingAfter = 10 * time.Minute
	r.start(c)
	r.pass("handled", r.empty)
	if took := handledAt.Load().Sub(begun); took < 10*time.Minute || took > 11*time.Minute {
		t.Errorf("taken over after %v, want 10 min", took)
	}
}

func TestConsumer_unanswering_log_fails_closed(t *testing.T) {
	for _, fault := range []testkit.Fault{testkit.FaultDown, testkit.FaultLoseReplies} {
		t.Run(string(fault), func(t *testing.T) {
			r := newRig(t)
			heal := r.log.Inject(fault)
			var handled atomic.Int64
			r.enqueue(record("a"))
			r.start(consumer(func(context.Context, semantic.FanoutRecord) error { handled.Add(1); return nil }))
			r.pass("it is signalled", func() bool { return len(r.signalled(observability.ConsumerHandlerFailed)) > 1 })
			if handled.Load() != 0 || r.empty() {
				t.Errorf("handled %d times, deleted %v", handled.Load(), r.empty())
			}
			heal()
			r.pass("handled once the log answers", r.empty)
			if handled.Load() != 1 {
				t.Errorf("handled %d times", handled.Load())
			}
		})
	}
}

// powertools-lambda-typescript#2944: a handler that succeeded must not run again because
// the log could not be told.
func TestConsumer_done_effect_is_not_repeated_when_the_log_cannot_be_told(t *testing.T) {
	r := newRig(t)
	var handled atomic.Int64
	var heal func()
	r.enqueue(record("a"))
	r.start(consumer(func(context.Context, semantic.FanoutRecord) error {
		heal = r.log.Inject(testkit.FaultDown)
		handled.Add(1)
		return nil
	}))
	r.pass("deleted", r.empty)
	heal()
	if dead, _ := r.sqs.Depth(r.dead); dead != 0 || len(r.signalled(observability.ConsumerHandlerFailed)) != 0 {
		t.Errorf("the handled message was brought back: %d dead", dead)
	}
	r.clock.Advance(time.Hour)
	if handled.Load() != 1 {
		t.Errorf("handled %d times", handled.Load())
	}
}

func TestConsumer_tells_the_log_again_when_it_answers_in_time(t *testing.T) {
	r := newRig(t)
	r.enqueue(record("a"))
	var heal func()
	down := make(chan struct{})
	r.start(consumer(func(context.Context, semantic.FanoutRecord) error {
		heal = r.log.Inject(testkit.FaultDown)
		close(down)
		return nil
	}))
	<-down
	// The first try waits for its backoff in virtual time by now, or will.
	heal()
	r.pass("deleted", r.empty)
	if rec, ok := r.log.Record("org", "d", "1:a:1"); !ok || rec.Status != semantic.StatusCompleted {
		t.Errorf("record is %+v", rec)
	}
}

// asynq#629: a failure keeps nothing locked.
func TestConsumer_failure_is_recorded_and_tried_again(t *testing.T) {
	r := newRig(t)
	var attempts journal
	r.enqueue(record("a"))
	r.start(consumer(func(ctx context.Context, _ semantic.FanoutRecord) error {
		d, _ := sqsfanout.DeliveryFromContext(ctx)
		if d.Attempt.TakenOver {
			t.Errorf("a failed attempt was taken over")
		}
		attempts.add("")
		if d.Attempt.Attempt < 3 {
			return errBroken
		}
		return nil
	}))
	r.pass("handled", r.empty)
	if attempts.len() != 3 {
		t.Errorf("%d attempts", attempts.len())
	}
	lines := r.signalled(observability.ConsumerHandlerFailed)
	if len(lines) != 2 || lines[1].ContextMap()["receives"] != int64(2) || lines[1].ContextMap()["consumer"] != "d" {
		t.Errorf("signals: %v", lines)
	}
	if rec, _ := r.log.Record("org", "d", "1:a:1"); rec.Status != semantic.StatusCompleted || rec.Metadata["consumer"] != "d" || rec.Metadata["message_id"] == "" {
		t.Errorf("record is %+v", rec)
	}
}

// spring-cloud-aws#124: a message that could not be deleted stops its group; its
// redelivery is recognised, and only then the group goes on.
func TestConsumer_undeleted_message_stops_its_group_and_is_recognised(t *testing.T) {
	r := newRig(t)
	refusals := 0
	r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
		if call.Operation != "DeleteMessage" || refusals == 2 {
			return testkit.SQSFault{}
		}
		refusals++
		return testkit.SQSFault{Refuse: true}
	})
	var done journal
	r.enqueue(grouped("g", "a"), grouped("g", "b"))
	r.start(consumer(func(_ context.Context, rec semantic.FanoutRecord) error { done.add(rec.RecordID); return nil }))
	r.pass("both are done", r.empty)
	if got := done.all(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("handled %v", got)
	}
	if n := len(r.signalled(observability.ConsumerDeleteFailed)); n != 2 {
		t.Errorf("%d signals", n)
	}
}

// dbos-transact-py#544: two messages of one record, one at a time wherever they are.
func TestConsumer_two_messages_of_one_record_have_one_effect(t *testing.T) {
	r := newRig(t)
	var effects, running atomic.Int64
	handle := func(context.Context, semantic.FanoutRecord) error {
		if running.Add(1) > 1 {
			t.Errorf("two at once")
		}
		defer running.Add(-1)
		effects.Add(1)
		return nil
	}
	a, b := record("a"), record("a")
	a.GroupID, b.GroupID = "one", "two"
	r.enqueue(a)
	r.clock.Advance(6 * time.Minute)
	r.enqueue(b)
	r.start(consumer(handle))
	r.start(consumer(handle))
	r.pass("both messages are gone", r.empty)
	if effects.Load() != 1 {
		t.Errorf("%d effects", effects.Load())
	}
}

func TestConsumer_zombie_reports_nothing_over_its_successor(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	started := make(chan struct{})
	var runs atomic.Int64
	r.enqueue(record("a"))
	successor := func(ctx context.Context) error {
		if d, _ := sqsfanout.DeliveryFromContext(ctx); !d.Attempt.TakenOver {
			t.Errorf("delivery is %+v", d)
		}
		return nil
	}
	r.start(consumer(func(ctx context.Context, _ semantic.FanoutRecord) error {
		if runs.Add(1) == 1 {
			close(started)
			<-release // ignores its context
			return errors.New("zombie failed")
		}
		return successor(ctx)
	}))
	<-started
	r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
		return testkit.SQSFault{Refuse: call.Operation == "ChangeMessageVisibility"}
	})
	r.pass("visibility is lost", func() bool { _, hidden := r.sqs.Depth(r.url); return hidden == 0 })
	r.sqs.SetFault(nil)
	// Whichever replica is handed the message, it does not wait behind the zombie.
	r.start(consumer(func(ctx context.Context, _ semantic.FanoutRecord) error {
		runs.Add(1)
		return successor(ctx)
	}))
	r.pass("the successor is done", func() bool {
		rec, _ := r.log.Record("org", "d", "1:a:1")
		return rec.Status == semantic.StatusCompleted
	})
	close(release)
	r.pass("the queue is empty", r.empty)
	if rec, _ := r.log.Record("org", "d", "1:a:1"); rec.Status != semantic.StatusCompleted {
		t.Errorf("record is %+v", rec)
	}
}
