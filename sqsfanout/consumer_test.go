package sqsfanout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// handler is the Handle of a consumer.
type handler = func(ctx context.Context, r semantic.FanoutRecord) error

func consumer(h handler) sqsfanout.Consumer { return sqsfanout.Consumer{Domain: "d", Handle: h} }

var errBroken = errors.New("broken")

func TestConsumer_handles_each_record_once_and_deletes_it(t *testing.T) {
	r := newRig(t)
	var done journal
	r.start(consumer(func(ctx context.Context, rec semantic.FanoutRecord) error {
		d, ok := sqsfanout.DeliveryFromContext(ctx)
		if !ok || d.Receives != 1 || d.Attempt.Attempt != 1 || d.MessageID == "" {
			t.Errorf("delivery is %+v", d)
		}
		done.add(rec.RecordID + "/" + rec.Version + ":" + string(rec.Body))
		return nil
	}))
	r.enqueue(record("a"), record("b"))
	r.pass("both are handled", func() bool { return done.len() == 2 && r.empty() })
	for _, want := range []string{"a/1:body of a", "b/1:body of b"} {
		if done.count(want) != 1 {
			t.Errorf("%q was handled %d times", want, done.count(want))
		}
	}
}

// Order within each group over many messages, a tenth of whose handlings fail, on two
// replicas. spring-cloud-aws#124, PR#192: no later message of a group may be handled
// while an earlier one is not done.
func TestConsumer_keeps_the_order_of_every_group_through_failures(t *testing.T) {
	r := newRigWith(t, 1000, nil)
	const n, groups = 3000, 100
	var mu sync.Mutex
	handled, inGroup := map[string][]string{}, map[string]int{}
	random := rand.New(rand.NewPCG(7, 7))
	total := 0
	handle := func(_ context.Context, rec semantic.FanoutRecord) error {
		mu.Lock()
		if inGroup[rec.GroupID]++; inGroup[rec.GroupID] > 1 {
			t.Errorf("two records of %s are handled at once", rec.GroupID)
		}
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		defer mu.Unlock()
		inGroup[rec.GroupID]--
		if random.IntN(10) == 0 {
			return sqsfanout.RetryAfter(errBroken, 0)
		}
		handled[rec.GroupID] = append(handled[rec.GroupID], rec.RecordID)
		total++
		return nil
	}
	report, err := r.producer().Enqueue(t.Context(), "d", many(n, groups))
	if err != nil || report.Enqueued != n {
		t.Fatalf("report %+v, %v", report, err)
	}
	r.start(sqsfanout.Consumer{Domain: "d", Handle: handle, Concurrency: 20})
	r.start(sqsfanout.Consumer{Domain: "d", Handle: handle, Concurrency: 20})
	r.pass("all are handled", func() bool { mu.Lock(); defer mu.Unlock(); return total >= n && r.empty() })
	mu.Lock()
	defer mu.Unlock()
	if total != n {
		t.Errorf("%d records succeeded, want %d", total, n)
	}
	for g, ids := range handled {
		if len(ids) != n/groups || !slices.IsSorted(ids) {
			t.Errorf("group %s was handled as %v", g, ids)
		}
	}
}

// powertools-lambda-python PR#3954, #2981; brefphp/symfony-messenger#81: a failure must
// fail no other group. spring-cloud-aws#1415: what was received behind it must not stay
// hidden. powertools-lambda-typescript#3673: and must be handled at its next receive.
func TestConsumer_failed_group_is_released_at_once_and_delays_no_other(t *testing.T) {
	r := newRig(t)
	var done journal
	var fail atomic.Bool
	fail.Store(true)
	r.enqueue(grouped("bad", "b1"), grouped("bad", "b2"), grouped("bad", "b3"), grouped("good", "g1"), grouped("good", "g2"))
	r.start(consumer(func(_ context.Context, rec semantic.FanoutRecord) error {
		if rec.RecordID == "b1" && fail.Load() {
			done.add("failed")
			return sqsfanout.RetryAfter(errBroken, time.Hour)
		}
		done.add(rec.RecordID)
		return nil
	}))
	// No virtual time passes: nothing here waits for a timeout.
	r.eventually("the good group is done and the bad one released", func() bool {
		visible, hidden := r.sqs.Depth(r.url)
		return done.count("g2") == 1 && visible == 2 && hidden == 1
	})
	if got := done.all(); slices.Contains(got, "b2") || slices.Contains(got, "b3") {
		t.Errorf("handled %v: b1 was overtaken", got)
	}
	fail.Store(false)
	r.clock.Advance(59 * time.Minute)
	if done.count("b1") != 0 {
		t.Errorf("b1 came back before its hour")
	}
	r.pass("the bad group is handled after its delay", func() bool { return done.len() == 6 && r.empty() })
	if got := done.all(); !slices.Equal(got[3:], []string{"b1", "b2", "b3"}) {
		t.Errorf("handled %v", got)
	}
}

func TestConsumer_a_slow_group_delays_no_other(t *testing.T) {
	r := newRig(t)
	var done journal
	release := make(chan struct{})
	defer close(release)
	var all []semantic.FanoutRecord
	for i := range 20 {
		all = append(all, grouped("slow", fmt.Sprint("s", i)), grouped(fmt.Sprint("q", i), fmt.Sprint("q", i)))
	}
	r.enqueue(all...)
	r.start(sqsfanout.Consumer{Domain: "d", Concurrency: 2, Handle: func(ctx context.Context, rec semantic.FanoutRecord) error {
		if rec.GroupID == "slow" {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		done.add(rec.RecordID)
		return nil
	}})
	r.pass("every quick record is handled", func() bool { return done.len() == 20 })
}

// celery#3270, #4766; Bogdanp/dramatiq_sqs PR#59: messages that wait in a local buffer
// outlive their visibility and run twice.
func TestConsumer_receives_only_what_it_has_a_worker_for(t *testing.T) {
	r := newRig(t)
	const workers = 3
	var asked journal
	r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
		if in, ok := call.Input.(*sqs.ReceiveMessageInput); ok {
			asked.add(fmt.Sprint(in.MaxNumberOfMessages))
		}
		return testkit.SQSFault{}
	})
	var running, most atomic.Int64
	release := make(chan struct{})
	report, err := r.producer().Enqueue(t.Context(), "d", many(10, 0))
	if err != nil || report.Enqueued != 10 {
		t.Fatal(report, err)
	}
	r.start(sqsfanout.Consumer{Domain: "d", Concurrency: workers, Handle: func(context.Context, semantic.FanoutRecord) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		<-release
		return nil
	}})
	r.eventually("every worker is busy", func() bool { return running.Load() == workers })
	if _, hidden := r.sqs.Depth(r.url); hidden != workers {
		t.Errorf("%d messages are in hand, want %d", hidden, workers)
	}
	if got := asked.all(); !slices.Equal(got, []string{"3"}) {
		t.Errorf("asked for %v messages while every worker was busy, want 3 once", got)
	}
	close(release)
	r.pass("the rest is handled", r.empty)
	if most.Load() != workers {
		t.Errorf("%d handlers ran at once", most.Load())
	}
}

func TestConsumer_panic_and_Goexit_fail_that_record_only(t *testing.T) {
	r := newRig(t)
	var done journal
	r.enqueue(record("panics"), record("exits"), record("fine"))
	r.start(consumer(func(_ context.Context, rec semantic.FanoutRecord) error {
		if done.count(rec.RecordID) > 0 {
			return nil
		}
		done.add(rec.RecordID)
		switch rec.RecordID {
		case "panics":
			panic("boom")
		case "exits":
			runtime.Goexit()
		}
		return nil
	}))
	r.pass("all are handled in the end", r.empty)
	errs := map[string]string{}
	for _, l := range r.signalled(observability.ConsumerHandlerFailed) {
		errs[fmt.Sprint(l.ContextMap()["record_id"])] = fmt.Sprint(l.ContextMap()["error"])
	}
	if len(errs) != 2 || !strings.Contains(errs["panics"], "boom") || !strings.Contains(errs["exits"], "without returning") {
		t.Errorf("signals: %v", errs)
	}
}

func TestConsumer_retry_delay_doubles_and_can_be_chosen(t *testing.T) {
	r := newRig(t)
	var at []time.Duration
	var mu sync.Mutex
	begun := r.clock.Now()
	r.enqueue(record("a"))
	c := consumer(func(context.Context, semantic.FanoutRecord) error {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, r.clock.Now().Sub(begun))
		switch len(at) {
		case 1:
			return fmt.Errorf("wrapped: %w", sqsfanout.RetryAfter(errBroken, 90*time.Second))
		case 2:
			return errBroken
		}
		return nil
	})
	c.RetryDelay = func(receives int, err error) time.Duration {
		if receives != 2 || !errors.Is(err, errBroken) {
			t.Errorf("asked for the delay after %d receives of %v", receives, err)
		}
		return 10 * time.Second
	}
	r.start(c)
	r.pass("handled", r.empty)
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []time.Duration{0, 90 * time.Second, 100 * time.Second} {
		if len(at) != 3 || at[i] < want || at[i] > want+8*time.Second {
			t.Fatalf("handled at %v, want about 0s, 90s and 100s", at)
		}
	}
}

func TestConsumer_bad_message_is_signalled_and_left_to_the_dead_letter_queue(t *testing.T) {
	r := newRigWith(t, 3, nil)
	group := "g"
	for i := range 2 {
		if _, err := r.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{
			QueueUrl: &r.url, MessageBody: aws.String("{}"), MessageGroupId: &group, MessageDeduplicationId: aws.String(fmt.Sprint(i)),
		}); err != nil {
			t.Fatal(err)
		}
	}
	var done journal
	r.enqueue(record("good"))
	r.start(consumer(func(_ context.Context, rec semantic.FanoutRecord) error { done.add(rec.RecordID); return nil }))
	r.eventually("another group is handled without delay", func() bool { return done.count("good") == 1 })
	r.pass("both bad ones are dead", func() bool { dead, _ := r.sqs.Depth(r.dead); return dead == 2 })
	ids := map[string]bool{}
	for _, l := range r.signalled(observability.ConsumerBadMessage) {
		ids[fmt.Sprint(l.ContextMap()["message_id"])] = true
	}
	if len(ids) != 2 {
		t.Errorf("signalled are %v, want both", ids)
	}
	if done.len() != 1 {
		t.Errorf("handled %v", done.all())
	}
}

// Released behind a failing message, its followers are received as often as it is: they
// must not go to the dead-letter queue with it without having been tried.
func TestConsumer_hopeless_message_takes_no_other_with_it(t *testing.T) {
	r := newRigWith(t, 3, nil)
	var tried journal
	r.enqueue(grouped("g", "hopeless"), grouped("g", "b"), grouped("g", "c"))
	r.start(consumer(func(_ context.Context, rec semantic.FanoutRecord) error {
		tried.add(rec.RecordID)
		if rec.RecordID == "hopeless" {
			return errBroken
		}
		return nil
	}))
	r.pass("the queue is empty", r.empty)
	if got := tried.all(); !slices.Equal(got, []string{"hopeless", "hopeless", "hopeless", "b", "c"}) {
		t.Errorf("tried %v", got)
	}
	if dead, _ := r.sqs.Depth(r.dead); dead != 1 {
		t.Errorf("%d messages are dead, want 1", dead)
	}
}

func TestConsumer_message_of_another_domain_is_not_handled(t *testing.T) {
	r := newRig(t)
	if _, err := r.producer().Enqueue(t.Context(), "other", stream(record("a"))); err != nil {
		t.Fatal(err)
	}
	h := r.start(consumer(func(context.Context, semantic.FanoutRecord) error { t.Error("handled"); return nil }))
	r.pass("it is signalled", func() bool { return len(r.signalled(observability.ConsumerBadMessage)) > 0 })
	if err := r.stop(h); err != nil {
		t.Fatal(err)
	}
	if r.empty() {
		t.Errorf("the message is gone")
	}
}

func TestConsumer_lost_receive_is_asked_again_under_the_same_attempt(t *testing.T) {
	r := newRig(t)
	r.enqueue(record("a"), record("b"))
	lost := 0
	var attempts journal
	r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
		in, ok := call.Input.(*sqs.ReceiveMessageInput)
		if !ok || lost == 2 {
			return testkit.SQSFault{}
		}
		attempts.add(*in.ReceiveRequestAttemptId)
		lost++
		return testkit.SQSFault{LoseReply: true}
	})
	var done journal
	begun := r.clock.Now()
	r.start(consumer(func(ctx context.Context, rec semantic.FanoutRecord) error {
		d, _ := sqsfanout.DeliveryFromContext(ctx)
		if d.Receives != 1 {
			t.Errorf("%s was received %d times: it waited for its visibility timeout", rec.RecordID, d.Receives)
		}
		done.add(rec.RecordID)
		return nil
	}))
	r.pass("both are handled", func() bool { return done.len() == 2 && r.empty() })
	if took := r.clock.Now().Sub(begun); took > 10*time.Second {
		t.Errorf("took %v of virtual time", took)
	}
	if got := attempts.all(); len(got) != 2 || got[0] != got[1] {
		t.Errorf("attempt ids %v", got)
	}
	if n := len(r.signalled(observability.ConsumerReceiveFailed)); n != 2 {
		t.Errorf("%d signals", n)
	}
}
