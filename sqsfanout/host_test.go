package sqsfanout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

func TestHost_stop_cancels_running_handlers_and_leaves_nothing_hidden(t *testing.T) {
	r := newRig(t)
	var started journal
	r.enqueue(grouped("g", "a"), grouped("g", "b"), grouped("h", "c"))
	h := r.start(consumer(func(ctx context.Context, rec semantic.FanoutRecord) error {
		started.add(rec.RecordID)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), sqsfanout.ErrStopping) {
			t.Errorf("cause is %v", context.Cause(ctx))
		}
		return ctx.Err()
	}))
	r.eventually("both groups are in hand", func() bool { return started.len() == 2 })
	if err := r.stop(h); err != nil {
		t.Fatal(err)
	}
	if visible, hidden := r.sqs.Depth(r.url); visible != 3 || hidden != 0 {
		t.Errorf("%d messages are visible and %d hidden, want 3 and 0", visible, hidden)
	}
	if slices.Contains(started.all(), "b") {
		t.Errorf("a handler started after the stop")
	}
	if n := len(r.signalled(observability.ConsumerHandlerFailed)); n != 0 {
		t.Errorf("%d handlers are said to have failed", n)
	}
	// Another replica goes on at once, in order.
	var done journal
	r.start(consumer(func(_ context.Context, rec semantic.FanoutRecord) error { done.add(rec.RecordID); return nil }))
	r.eventually("all are handled elsewhere", func() bool { return done.len() == 3 && r.empty() })
	if got := done.all(); slices.Index(got, "a") > slices.Index(got, "b") {
		t.Errorf("handled %v", got)
	}
}

func TestHost_stop_lets_a_handler_finish_within_its_budget(t *testing.T) {
	r := newRig(t)
	cancelled := make(chan struct{})
	finish := make(chan struct{})
	r.enqueue(record("a"))
	h := r.start(consumer(func(ctx context.Context, _ semantic.FanoutRecord) error {
		<-ctx.Done()
		close(cancelled)
		<-finish
		return nil
	}))
	r.eventually("in hand", func() bool { _, hidden := r.sqs.Depth(r.url); return hidden == 1 })
	go func() { <-cancelled; close(finish) }()
	if err := r.stop(h); err != nil {
		t.Fatal(err)
	}
	if !r.empty() {
		t.Errorf("the handled message was not deleted")
	}
}

func TestHost_stop_that_runs_out_of_time_names_the_handler_and_can_be_repeated(t *testing.T) {
	r := newRig(t)
	finish := make(chan struct{})
	started := make(chan struct{})
	r.enqueue(grouped("g", "stuck"), grouped("g", "behind"))
	h := r.start(consumer(func(context.Context, semantic.FanoutRecord) error {
		close(started)
		<-finish
		return nil
	}))
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := h.Stop(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "org/stuck") {
		t.Fatalf("error is %v", err)
	}
	r.eventually("what waited behind it is released", func() bool { visible, hidden := r.sqs.Depth(r.url); return visible == 1 && hidden == 1 })
	r.clock.Advance(10 * time.Minute)
	if _, hidden := r.sqs.Depth(r.url); hidden != 1 {
		t.Errorf("the running handler's message is not kept hidden")
	}
	close(finish)
	if err := r.stop(h); err != nil {
		t.Errorf("second stop: %v", err)
	}
	if visible, hidden := r.sqs.Depth(r.url); visible != 1 || hidden != 0 {
		t.Errorf("%d visible, %d hidden, want the one behind it", visible, hidden)
	}
}

// bbc/sqs-consumer#567, #346; spring-cloud-aws#137, #925, #1558: what a receive under way
// brings after the stop must not stay hidden.
func TestHost_stop_releases_what_a_receive_under_way_brings(t *testing.T) {
	r := newRig(t)
	h := r.start(consumer(func(context.Context, semantic.FanoutRecord) error { t.Error("handled after the stop"); return nil }))
	r.eventually("a receive waits", func() bool { return r.sqs.Calls("ReceiveMessage") == 1 && r.clock.Pending() > 0 })
	done := make(chan error, 1)
	go func() { done <- h.Stop(context.Background()) }()
	r.eventually("the stop waits for the receive", func() bool { return stopping(h) })
	r.enqueue(record("a")) // wakes the receive
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if visible, hidden := r.sqs.Depth(r.url); visible != 1 || hidden != 0 {
		t.Errorf("%d visible, %d hidden", visible, hidden)
	}
}

// stopping tells whether the host's stop has begun: a second start is still refused, and
// a stop whose context has ended returns its error.
func stopping(h *sqsfanout.Host) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return h.Stop(ctx) != nil
}

// A stop with too little time for the receive cuts it short, and asks again for what the
// server may have hidden for it meanwhile.
func TestHost_hurried_stop_recovers_what_the_cut_receive_had_hidden(t *testing.T) {
	r := newRig(t)
	r.sqs.SetCancelHides(true)
	h := r.start(consumer(func(context.Context, semantic.FanoutRecord) error { t.Error("handled after the stop"); return nil }))
	r.eventually("a receive waits", func() bool { return r.sqs.Calls("ReceiveMessage") == 1 && r.clock.Pending() > 0 })
	// The message below is taken by a poll that nobody waits for any more.
	sent := false
	ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.Stop(ctx) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if visible, hidden := r.sqs.Depth(r.url); !sent || visible != 1 || hidden != 0 {
				t.Errorf("sent %v: %d visible, %d hidden", sent, visible, hidden)
			}
			return
		case <-time.After(time.Millisecond):
			if !sent && r.sqs.Calls("ReceiveMessage") == 2 { // cut short and asked again
				sent = true
				r.enqueue(record("a"))
			}
		}
	}
}

// One hundred stops under load: no handler starts after a stop, and at the end every
// message was handled or can be received at once.
func TestHost_hundred_stops_under_load_leave_nothing_hidden(t *testing.T) {
	fake := testkit.NewSQS(nil)
	fake.SetCancelHides(true)
	url, dead := testkit.CreateFIFO(t, fake, "work", 1000, nil)
	log := testkit.NewIdempotencyLogBackend(nil)
	config := sqsfanout.Config{QueueURL: url, API: fake, PollWait: time.Second}
	producer, err := sqsfanout.NewProducer(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000
	report, err := producer.Enqueue(t.Context(), "d", many(n, 300))
	if err != nil || report.Enqueued != n {
		t.Fatal(report, err)
	}
	var stopped atomic.Bool
	var mu sync.Mutex
	last, effects := map[string]string{}, map[string]int{}
	handle := func(ctx context.Context, rec semantic.FanoutRecord) error {
		if stopped.Load() {
			t.Error("a handler started after the stop")
		}
		if len(rec.RecordID)%2 == 0 || rec.RecordID[len(rec.RecordID)-1]%3 == 0 {
			select { // some are slow
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if last[rec.GroupID] >= rec.RecordID {
			t.Errorf("group %s: %s after %s", rec.GroupID, rec.RecordID, last[rec.GroupID])
		}
		last[rec.GroupID] = rec.RecordID
		effects[rec.RecordID]++
		return nil
	}
	h, err := sqsfanout.NewHost(config, []sqsfanout.Consumer{{Domain: "d", Handle: handle, Concurrency: 20}}, log.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for cycle := range 100 {
		stopped.Store(false)
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		before := len(effects)
		mu.Unlock()
		eventually(t, "it has begun to work", func() bool {
			mu.Lock()
			defer mu.Unlock()
			visible, _ := fake.Depth(url)
			return len(effects) > before || visible == 0
		})
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		begun := time.Now()
		err := h.Stop(ctx)
		cancel()
		stopped.Store(true)
		if err != nil {
			t.Fatalf("cycle %d: %v after %v", cycle, err, time.Since(begun))
		}
		if _, hidden := fake.Depth(url); hidden != 0 {
			t.Fatalf("cycle %d: %d messages are hidden after the stop", cycle, hidden)
		}
	}
	visible, _ := fake.Depth(url)
	if d, _ := fake.Depth(dead); d != 0 || visible+len(effects) != n {
		t.Errorf("%d handled, %d queued, %d dead, want %d in all", len(effects), visible, d, n)
	}
	for id, times := range effects {
		if times != 1 {
			t.Errorf("%s had %d effects", id, times)
		}
	}
}

func TestHost_start_and_stop_in_any_order(t *testing.T) {
	r := newRig(t)
	h, err := sqsfanout.NewHost(r.config, []sqsfanout.Consumer{consumer(func(context.Context, semantic.FanoutRecord) error { return nil })}, r.log.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Errorf("stop of a host that never started: %v", err)
	}
	for range 2 {
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Start(t.Context()); err == nil {
			t.Errorf("started twice")
		}
		for range 2 {
			if err := r.stop(h); err != nil {
				t.Errorf("stop: %v", err)
			}
		}
	}
}

func TestHost_start_context_does_not_bound_its_life(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	var done journal
	h, err := sqsfanout.NewHost(r.config, []sqsfanout.Consumer{consumer(func(context.Context, semantic.FanoutRecord) error { done.add(""); return nil })}, r.log.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	r.enqueue(record("a"))
	r.pass("handled", func() bool { return done.len() == 1 })
	if err := r.stop(h); err != nil {
		t.Fatal(err)
	}
}

func TestHost_without_consumers_needs_nothing(t *testing.T) {
	h, err := sqsfanout.NewHost(sqsfanout.Config{}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestHost_refuses_what_cannot_work(t *testing.T) {
	handle := func(context.Context, semantic.FanoutRecord) error { return nil }
	log := testkit.NewIdempotencyLogBackend(nil).Client()
	for _, c := range []struct {
		name      string
		consumers []sqsfanout.Consumer
		log       semantic.IdempotencyLog
		want      string
	}{
		{"no log", []sqsfanout.Consumer{{Domain: "d", Handle: handle}}, nil, "idempotency log"},
		{"no handler", []sqsfanout.Consumer{{Domain: "d"}}, log, "Handle"},
		{"no domain", []sqsfanout.Consumer{{Name: "n", Handle: handle}}, log, "Domain"},
		{"one domain twice", []sqsfanout.Consumer{{Name: "a", Domain: "d", Handle: handle}, {Name: "b", Domain: "d", Handle: handle}}, log, "distinct"},
		{"visibility in fractions", []sqsfanout.Consumer{{Domain: "d", Handle: handle, Visibility: 10500 * time.Millisecond}}, log, "whole seconds"},
		{"visibility below the poll", []sqsfanout.Consumer{{Domain: "d", Handle: handle, Visibility: 9 * time.Second}}, log, "PollWait"},
		{"takeover within visibility", []sqsfanout.Consumer{{Domain: "d", Handle: handle, TakeOverPendingAfter: 30 * time.Second}}, log, "TakeOverPendingAfter"},
		{"too many workers", []sqsfanout.Consumer{{Domain: "d", Handle: handle, Concurrency: 1001}}, log, "Concurrency"},
	} {
		if _, err := sqsfanout.NewHost(sqsfanout.Config{}, c.consumers, c.log, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want one about %q", c.name, err, c.want)
		}
	}
	h, err := sqsfanout.NewHost(sqsfanout.Config{}, []sqsfanout.Consumer{{Domain: "d", Handle: handle}}, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "QueueURL") || !strings.Contains(err.Error(), "COORD_SQS_QUEUE_URL") || !strings.Contains(err.Error(), `"d"`) {
		t.Errorf("start without a queue: %v", err)
	}
}

func TestHost_consumers_of_two_queues_do_not_share_workers(t *testing.T) {
	r := newRig(t)
	own, _ := testkit.CreateFIFO(t, r.sqs, "own", 5, nil)
	r.config.Queues = map[string]string{"e": own}
	release := make(chan struct{})
	var done journal
	busy := consumer(func(context.Context, semantic.FanoutRecord) error { <-release; return nil })
	busy.Concurrency = 1
	for domain := range map[string]bool{"d": true, "e": true} {
		if _, err := r.producer().Enqueue(t.Context(), domain, many(3, 0)); err != nil {
			t.Fatal(err)
		}
	}
	h, err := sqsfanout.NewHost(r.config, []sqsfanout.Consumer{busy, {Domain: "e", Concurrency: 1, Handle: func(_ context.Context, rec semantic.FanoutRecord) error {
		done.add(rec.RecordID)
		return nil
	}}}, r.log.Client(), r.signals)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		close(release)
		t.Fatal(err)
	}
	r.pass("the other queue is empty", func() bool { return done.len() == 3 })
	close(release)
	if err := r.stop(h); err != nil {
		t.Fatal(err)
	}
}

func TestHost_end_to_end_on_fauxqs(t *testing.T) {
	f := testkit.StartFauxqs(t)
	url, _ := testkit.CreateFIFO(t, f.Client, "work", 100, nil)
	config := sqsfanout.Config{QueueURL: url, API: f.Client, PollWait: time.Second}
	producer, err := sqsfanout.NewProducer(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n, groups = 120, 8
	report, err := producer.Enqueue(t.Context(), "d", many(n, groups))
	if err != nil || report.Enqueued != n {
		t.Fatal(report, err)
	}
	log := testkit.NewIdempotencyLogBackend(nil)
	var mu sync.Mutex
	handled, tries := map[string][]string{}, map[string]int{}
	total := 0
	start := func() *sqsfanout.Host {
		h, err := sqsfanout.NewHost(config, []sqsfanout.Consumer{{Domain: "d", Handle: func(_ context.Context, rec semantic.FanoutRecord) error {
			mu.Lock()
			defer mu.Unlock()
			if tries[rec.RecordID]++; strings.HasSuffix(rec.RecordID, "5") && tries[rec.RecordID] == 1 {
				return sqsfanout.RetryAfter(errBroken, 0)
			}
			handled[rec.GroupID] = append(handled[rec.GroupID], rec.RecordID)
			total++
			return nil
		}}}, log.Client(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h
	}
	stop := func(hosts ...*sqsfanout.Host) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		for _, h := range hosts {
			if err := h.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if hidden := attribute(t, f.Client, url, "ApproximateNumberOfMessagesNotVisible"); hidden != "0" {
			t.Errorf("%s messages are hidden after the stop", hidden)
		}
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return total }
	first := start()
	eventually(t, "half is handled", func() bool { return count() > n/2 })
	stop(first)
	second, third := start(), start()
	eventually(t, "all are handled", func() bool { return count() == n })
	stop(second, third)
	if left := attribute(t, f.Client, url, "ApproximateNumberOfMessages"); left != "0" || count() != n {
		t.Errorf("%s messages are left, %d were handled", left, count())
	}
	for g, ids := range handled {
		if !slices.IsSorted(ids) || len(ids) != n/groups {
			t.Errorf("group %s was handled as %v", g, ids)
		}
	}
}

func attribute(t *testing.T, client testkit.SQSClient, url, name string) string {
	t.Helper()
	out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: allAttributes})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(out.Attributes[name])
}
