package sqsfanout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// quickRig is a rig in which backoff costs no time.
func quickRig(t *testing.T) *rig {
	r := newRig(t)
	r.config.Clock = quick{r.clock}
	return r
}

// sends makes hook see every SendMessageBatch, with its position.
func (r *rig) sends(hook func(n int, in *sqs.SendMessageBatchInput) testkit.SQSFault) {
	n := 0
	r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
		in, ok := call.Input.(*sqs.SendMessageBatchInput)
		if !ok {
			return testkit.SQSFault{}
		}
		n++
		return hook(n, in)
	})
}

func adds(t *testing.T, report semantic.FanoutReport) {
	t.Helper()
	if report.Scanned != report.Enqueued+report.Failed+report.Skipped {
		t.Errorf("report does not add up: %+v", report)
	}
}

func dedupIDs(in *sqs.SendMessageBatchInput) []string {
	ids := make([]string, len(in.Entries))
	for i, e := range in.Entries {
		ids[i] = *e.MessageDeduplicationId
	}
	return ids
}

func entryFault(in *sqs.SendMessageBatchInput, at int, code string, senderFault bool) testkit.SQSFault {
	return testkit.SQSFault{Fail: map[string]types.BatchResultErrorEntry{
		*in.Entries[at].Id: {Code: &code, Message: aws.String("injected"), SenderFault: senderFault},
	}}
}

// aws-sdk-go-v2#3519: SendMessageBatch returns a nil error beside failed entries. Only
// those are sent again, and only if the queue is at fault.
func TestProducer_sends_again_only_what_failed_for_the_queues_reasons(t *testing.T) {
	r := quickRig(t)
	var calls [][]string
	r.sends(func(n int, in *sqs.SendMessageBatchInput) testkit.SQSFault {
		calls = append(calls, dedupIDs(in))
		if n > 1 {
			return testkit.SQSFault{}
		}
		f := entryFault(in, 2, "InternalError", false)
		f.Fail[*in.Entries[4].Id] = types.BatchResultErrorEntry{Code: aws.String("KmsAccessDenied"), SenderFault: true}
		return f
	})
	report, err := r.producer().Enqueue(t.Context(), "d", many(10, 0))
	if err != nil || report.Enqueued != 9 || report.Failed != 1 || report.Calls != 2 {
		t.Fatalf("report %+v, %v", report, err)
	}
	if f := report.Failures[0]; f.Code != "KmsAccessDenied" || f.RecordID != "r000004" || !errors.Is(f.Err, semantic.ErrUnavailable) {
		t.Errorf("failure is %+v", f)
	}
	if want := calls[0][2:3]; !slices.Equal(calls[1], want) {
		t.Errorf("sent again: %v, want only %v", calls[1], want)
	}
}

// JasperFx/wolverine PR#3503: an error of one request must neither count others as sent
// nor send again what an earlier request had queued.
func TestProducer_failing_request_leaves_other_batches_alone(t *testing.T) {
	r := quickRig(t)
	r.config.Concurrency = 1
	sent := map[string]int{}
	r.sends(func(n int, in *sqs.SendMessageBatchInput) testkit.SQSFault {
		if n == 2 {
			return testkit.SQSFault{Err: &smithy.GenericAPIError{Code: "AccessDenied", Fault: smithy.FaultClient}}
		}
		for _, id := range dedupIDs(in) {
			sent[id]++
		}
		return testkit.SQSFault{}
	})
	report, err := r.producer().Enqueue(t.Context(), "d", many(30, 0))
	if err != nil || report.Enqueued != 20 || report.Failed != 10 || report.Calls != 3 {
		t.Fatalf("report %+v, %v", report, err)
	}
	for id, n := range sent {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	if f := report.Failures[0]; f.Code != "AccessDenied" || f.RecordID != "r000010" {
		t.Errorf("failure is %+v", f)
	}
}

// aws-samples/sample-voice-of-customer-datalake#259, PR#304: Successful and Failed may
// not cover the request. What is missing may have been queued or not.
func TestProducer_sends_an_unaccounted_entry_again_under_the_same_id(t *testing.T) {
	r := quickRig(t)
	var calls [][]string
	r.sends(func(n int, in *sqs.SendMessageBatchInput) testkit.SQSFault {
		calls = append(calls, dedupIDs(in))
		if n == 1 {
			return testkit.SQSFault{Omit: map[string]bool{*in.Entries[1].Id: true}}
		}
		return testkit.SQSFault{}
	})
	report, err := r.producer().Enqueue(t.Context(), "d", many(3, 0))
	if err != nil || report.Enqueued != 3 || len(calls) != 2 || !slices.Equal(calls[1], calls[0][1:2]) {
		t.Errorf("report %+v, %v; sent %v", report, err, calls)
	}
	if visible, _ := r.sqs.Depth(r.url); visible != 3 {
		t.Errorf("%d messages are queued, want 3", visible)
	}
}

func TestProducer_answer_that_never_came_is_unknown_whatever_came_later(t *testing.T) {
	r := quickRig(t)
	r.config.Attempts = 2
	r.sends(func(n int, in *sqs.SendMessageBatchInput) testkit.SQSFault {
		if n == 1 {
			return testkit.SQSFault{LoseReply: true}
		}
		return entryFault(in, 0, "InternalError", false)
	})
	report, err := r.producer().Enqueue(t.Context(), "d", many(1, 0))
	if err != nil || report.Failed != 1 || report.Failures[0].Code != sqsfanout.CodeUnknown || !errors.Is(report.Failures[0].Err, semantic.ErrUnknown) {
		t.Errorf("report %+v, %v: want UNKNOWN", report, err)
	}
}

func TestProducer_outcome_of_each_error(t *testing.T) {
	api := func(code string, fault smithy.ErrorFault) error {
		return &smithy.GenericAPIError{Code: code, Fault: fault}
	}
	for _, c := range []struct {
		name  string
		fault testkit.SQSFault
		code  string
		is    error
		calls int64
	}{
		{"refused connection", testkit.SQSFault{Refuse: true}, "UNAVAILABLE", semantic.ErrUnavailable, 3},
		{"lost reply", testkit.SQSFault{LoseReply: true}, "UNKNOWN", semantic.ErrUnknown, 3},
		{"server error", testkit.SQSFault{Err: api("InternalFailure", smithy.FaultServer)}, "UNKNOWN", semantic.ErrUnknown, 3},
		{"throttled", testkit.SQSFault{Err: api("RequestThrottled", smithy.FaultClient)}, "RequestThrottled", semantic.ErrUnavailable, 3},
		{"older throttle code", testkit.SQSFault{Err: api("AWS.SimpleQueueService.OverLimit", smithy.FaultClient)}, "OverLimit", semantic.ErrUnavailable, 3},
		{"access denied", testkit.SQSFault{Err: api("AccessDenied", smithy.FaultClient)}, "AccessDenied", semantic.ErrUnavailable, 1},
		{"no such queue", testkit.SQSFault{Err: api("AWS.SimpleQueueService.NonExistentQueue", smithy.FaultClient)}, "QueueDoesNotExist", semantic.ErrUnavailable, 1},
		{"something else", testkit.SQSFault{Err: errors.New("checksum does not match")}, "UNKNOWN", semantic.ErrUnknown, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := quickRig(t)
			r.config.Attempts = 3
			r.sends(func(int, *sqs.SendMessageBatchInput) testkit.SQSFault { return c.fault })
			report, err := r.producer().Enqueue(t.Context(), "d", many(1, 0))
			if err != nil || report.Failed != 1 || report.Calls != c.calls {
				t.Fatalf("report %+v, %v: want %d calls", report, err, c.calls)
			}
			if f := report.Failures[0]; f.Code != c.code || !errors.Is(f.Err, c.is) {
				t.Errorf("failure is %s, %v: want %s", f.Code, f.Err, c.code)
			}
		})
	}
}

// Within a group nothing overtakes, whatever fails: the order in which the queue has a
// group's messages is that of the scan, with holes where records failed.
func TestProducer_no_fault_reorders_a_group_or_loses_a_record(t *testing.T) {
	for seed := range uint64(30) {
		r := quickRig(t)
		random := rand.New(rand.NewPCG(seed, 1))
		r.sends(func(_ int, in *sqs.SendMessageBatchInput) testkit.SQSFault {
			groups := map[string]bool{}
			for _, e := range in.Entries {
				if groups[*e.MessageGroupId] {
					t.Errorf("seed %d: a batch has two entries of a group", seed)
				}
				groups[*e.MessageGroupId] = true
			}
			switch at := random.IntN(len(in.Entries)); random.IntN(8) {
			case 0:
				return testkit.SQSFault{LoseReply: true}
			case 1:
				return testkit.SQSFault{Refuse: true}
			case 2, 3:
				return entryFault(in, at, "InternalError", false)
			case 4:
				return testkit.SQSFault{Omit: map[string]bool{*in.Entries[at].Id: true}}
			case 5:
				return entryFault(in, at, "InvalidParameterValue", true)
			}
			return testkit.SQSFault{}
		})
		report, err := r.producer().Enqueue(t.Context(), "d", many(300, 7))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		adds(t, report)
		r.sqs.SetFault(nil)
		failed := map[string]string{}
		for _, f := range report.Failures {
			failed[f.RecordID] = f.Code
		}
		inGroup, seen := map[string][]string{}, map[string]bool{}
		for _, q := range (queueReader{client: r.sqs, url: r.url}).Take(t) {
			if seen[q.Record.RecordID] {
				t.Errorf("seed %d: %s is queued twice", seed, q.Record.RecordID)
			}
			seen[q.Record.RecordID] = true
			inGroup[q.Record.GroupID] = append(inGroup[q.Record.GroupID], q.Record.RecordID)
		}
		for g, ids := range inGroup {
			if !slices.IsSorted(ids) {
				t.Errorf("seed %d: group %s is queued as %v", seed, g, ids)
			}
		}
		for i := range 300 {
			id := fmt.Sprintf("r%06d", i)
			code, bad := failed[id]
			if seen[id] == bad && code != sqsfanout.CodeUnknown {
				t.Errorf("seed %d: %s: queued %v, reported as failed %v (%s)", seed, id, seen[id], bad, code)
			}
		}
	}
}

// asynq#492, #842, #1055: a record that went to the dead-letter queue must not block the
// next wish to handle it.
func TestProducer_new_version_is_queued_after_the_old_one_died(t *testing.T) {
	r := newRigWith(t, 3, nil)
	r.enqueue(record("a"))
	for range 4 { // received too often
		out, err := r.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &r.url})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			_, _ = r.sqs.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &r.url, ReceiptHandle: m.ReceiptHandle})
		}
	}
	if dead, _ := r.sqs.Depth(r.dead); dead != 1 {
		t.Fatalf("%d messages are dead, want 1", dead)
	}
	again := record("a")
	r.enqueue(again)
	if visible, _ := r.sqs.Depth(r.url); visible != 0 {
		t.Errorf("the same version is queued again within the window")
	}
	again.Version = "2"
	r.enqueue(again)
	if visible, _ := r.sqs.Depth(r.url); visible != 1 {
		t.Errorf("the new version is not queued")
	}
}

func TestProducer_signals_each_failed_record(t *testing.T) {
	r := quickRig(t)
	r.sends(func(_ int, in *sqs.SendMessageBatchInput) testkit.SQSFault {
		return entryFault(in, 0, "KmsDisabled", true)
	})
	bad := record("bad")
	bad.Body = []byte{0}
	if _, err := r.producer().Enqueue(t.Context(), "invoices", stream(record("a"), bad)); err != nil {
		t.Fatal(err)
	}
	lines := r.signalled(observability.CronFanoutEnqueueFailed)
	got := map[string]string{}
	for _, l := range lines {
		f := l.ContextMap()
		got[fmt.Sprint(f["job"], " ", f["organization_id"], " ", f["record_id"])] = fmt.Sprint(f["code"])
	}
	if len(lines) != 2 || got["invoices org a"] != "KmsDisabled" || got["invoices org bad"] != "INVALID" {
		t.Errorf("signals: %v", got)
	}
}

func TestProducer_panic_of_the_scan_passes_once_nothing_is_in_flight(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	var inFlight sync.WaitGroup
	inFlight.Add(1)
	blocked := &blocking{SQS: r.sqs, enter: inFlight.Done, release: release}
	r.config.API = blocked
	defer func() {
		if p := recover(); p != "scan broke" {
			t.Errorf("recovered %v", p)
		}
		if blocked.now.Load() != 0 {
			t.Errorf("a request is still in flight")
		}
	}()
	_, _ = r.producer().Enqueue(t.Context(), "d", func(yield func(semantic.FanoutRecord, error) bool) {
		for i := range 10 {
			yield(record(fmt.Sprint(i)), nil)
		}
		inFlight.Wait()
		panic("scan broke")
	})
}

// blocking holds the first send until its context ends.
type blocking struct {
	*testkit.SQS
	enter   func()
	release chan struct{}
	now     atomic.Int64
}

func (b *blocking) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	b.now.Add(1)
	defer b.now.Add(-1)
	b.enter()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.release:
		return b.SQS.SendMessageBatch(ctx, in)
	}
}

func TestProducer_a_silent_queue_is_bounded_by_the_call_timeout(t *testing.T) {
	r := quickRig(t)
	r.config.CallTimeout, r.config.Attempts = 100*time.Millisecond, 2
	r.sends(func(int, *sqs.SendMessageBatchInput) testkit.SQSFault { return testkit.SQSFault{Hang: true} })
	report, err := r.producer().Enqueue(t.Context(), "d", many(1, 0))
	if err != nil || report.Failed != 1 || report.Calls != 2 || report.Failures[0].Code != sqsfanout.CodeUnknown {
		t.Errorf("report %+v, %v", report, err)
	}
}

// The end of the context is seen wherever the enqueue stands: reading, waiting for room,
// or for a reply.
func TestProducer_cancel_at_any_moment_returns_with_every_record_accounted_for(t *testing.T) {
	for at := range 60 {
		r := quickRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		r.sends(func(n int, _ *sqs.SendMessageBatchInput) testkit.SQSFault {
			if n == 1+at/2 {
				cancel()
			}
			return testkit.SQSFault{LoseReplyHang: at%2 == 0 && n >= 1+at/2}
		})
		read := int64(0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			report, err := r.producer().Enqueue(ctx, "d", func(yield func(semantic.FanoutRecord, error) bool) {
				many(1000, at%5*3)(func(rec semantic.FanoutRecord, err error) bool { read++; return yield(rec, err) })
			})
			adds(t, report)
			if !errors.Is(err, context.Canceled) || report.Scanned != read {
				t.Errorf("at %d: scanned %d of %d read, error %v", at, report.Scanned, read, err)
			}
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("at %d: did not return within 20 s of the cancel", at)
		}
		cancel()
	}
}

func TestProducer_closed_refuses(t *testing.T) {
	r := newRig(t)
	p := r.producer()
	p.Close()
	if _, err := p.Enqueue(t.Context(), "d", many(1, 0)); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("error is %v", err)
	}
	if err := p.Start(t.Context()); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("start: %v", err)
	}
}

func TestProducer_domain_with_a_queue_of_its_own(t *testing.T) {
	r := newRig(t)
	own, _ := testkit.CreateFIFO(t, r.sqs, "own", 5, nil)
	r.config.Queues = map[string]string{"special": own}
	p := r.producer()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Enqueue(t.Context(), "special", many(2, 0)); err != nil {
		t.Fatal(err)
	}
	if visible, _ := r.sqs.Depth(own); visible != 2 {
		t.Errorf("%d messages in the domain's queue", visible)
	}
}
