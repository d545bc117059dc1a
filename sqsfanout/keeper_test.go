package sqsfanout_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

func TestConsumer_extends_visibility_from_receipt_on(t *testing.T) {
	r := newRig(t)
	var done journal
	release := make(chan struct{})
	r.enqueue(grouped("g", "first"), grouped("g", "second"))
	r.start(consumer(func(_ context.Context, rec semantic.FanoutRecord) error {
		done.add(rec.RecordID)
		if rec.RecordID == "first" {
			<-release
		}
		return nil
	}))
	r.eventually("the first is running", func() bool { return done.len() == 1 })
	for range 600 { // 10 minutes, 20 times the visibility timeout
		r.clock.Advance(time.Second)
		if _, hidden := r.sqs.Depth(r.url); hidden != 2 {
			t.Fatalf("%d messages are hidden, want the running one and the one behind it", hidden)
		}
	}
	close(release)
	r.pass("both are done", r.empty)
	if got := done.all(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("handled %v", got)
	}
}

// The handler hears of the loss while the message is still hidden from others.
func TestConsumer_lost_heartbeat_cancels_the_handler_and_deletes_nothing(t *testing.T) {
	for _, c := range []struct {
		name        string
		fault       testkit.SQSFault
		early, late time.Duration // when the handler must be cancelled
	}{
		{"unreachable queue", testkit.SQSFault{Refuse: true}, 25 * time.Second, 26 * time.Second},
		{"stale receipt", testkit.SQSFault{Err: &types.MessageNotInflight{}}, 10 * time.Second, 11 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			contexts := make(chan context.Context, 2)
			r.enqueue(record("a"))
			begun := r.clock.Now()
			r.start(consumer(func(ctx context.Context, _ semantic.FanoutRecord) error {
				contexts <- ctx
				<-ctx.Done()
				return nil // as if it had succeeded
			}))
			ctx := <-contexts
			r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
				if strings.HasPrefix(call.Operation, "ChangeMessageVisibility") {
					return c.fault
				}
				return testkit.SQSFault{}
			})
			for ctx.Err() == nil && r.clock.Now().Sub(begun) < time.Minute {
				r.clock.Advance(100 * time.Millisecond)
			}
			if took := r.clock.Now().Sub(begun); took < c.early || took >= c.late {
				t.Errorf("cancelled after %v, want %v to %v", took, c.early, c.late)
			}
			if !errors.Is(context.Cause(ctx), sqsfanout.ErrVisibilityLost) {
				t.Errorf("cause is %v", context.Cause(ctx))
			}
			if _, hidden := r.sqs.Depth(r.url); hidden != 1 {
				t.Errorf("%d messages are hidden when the handler is cancelled, want its own", hidden)
			}
			r.eventually("the loss is signalled", func() bool { return len(r.signalled(observability.ConsumerHeartbeatLost)) == 1 })
			if r.empty() {
				t.Errorf("the message was deleted")
			}
			r.sqs.SetFault(nil)
			// Delivered again and recognised: the first attempt returned nil.
			r.pass("the message is gone", r.empty)
			if len(contexts) != 0 {
				t.Errorf("handled again")
			}
		})
	}
}

func TestConsumer_one_failed_heartbeat_is_tried_again(t *testing.T) {
	r := newRig(t)
	started, release := make(chan struct{}), make(chan struct{})
	r.enqueue(record("a"))
	r.start(consumer(func(ctx context.Context, _ semantic.FanoutRecord) error {
		close(started)
		<-release
		return ctx.Err()
	}))
	<-started
	failed := false
	r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
		fault := testkit.SQSFault{Refuse: !failed && call.Operation == "ChangeMessageVisibility"}
		failed = failed || fault.Refuse
		return fault
	})
	for range 120 {
		r.clock.Advance(time.Second)
	}
	close(release)
	r.pass("done", r.empty)
	if n := len(r.signalled(observability.ConsumerHeartbeatLost)) + len(r.signalled(observability.ConsumerHandlerFailed)); n != 0 {
		t.Errorf("%d signals", n)
	}
}

func TestConsumer_never_asks_for_more_than_12_hours(t *testing.T) {
	r := newRig(t)
	contexts := make(chan context.Context, 2)
	r.enqueue(record("a"))
	begun := r.clock.Now()
	c := consumer(func(ctx context.Context, _ semantic.FanoutRecord) error {
		contexts <- ctx
		<-ctx.Done()
		return nil
	})
	c.Visibility = 2 * time.Hour
	r.start(c)
	ctx := <-contexts
	asks := 0
	r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
		if in, ok := call.Input.(*sqs.ChangeMessageVisibilityInput); ok {
			asks++
			until := r.clock.Now().Add(time.Duration(in.VisibilityTimeout) * time.Second)
			if until.Sub(begun) > 12*time.Hour {
				t.Errorf("asked to hide until %v after the receipt", until.Sub(begun))
			}
		}
		return testkit.SQSFault{}
	})
	for ctx.Err() == nil && r.clock.Now().Sub(begun) < 13*time.Hour {
		r.clock.Advance(time.Minute)
	}
	if !errors.Is(context.Cause(ctx), sqsfanout.ErrVisibilityLost) {
		t.Errorf("ended with %v", context.Cause(ctx))
	}
	if ran := r.clock.Now().Sub(begun); ran < 11*time.Hour+30*time.Minute || ran > 12*time.Hour {
		t.Errorf("ended after %v, want just before 12 h", ran)
	}
	if asks < 15 {
		t.Errorf("asked %d times", asks)
	}
	r.pass("the message is gone", r.empty)
}
