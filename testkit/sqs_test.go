package testkit_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/testkit"
)

func clients(client testkit.SQSClient, n int) []testkit.SQSClient {
	return slices.Repeat([]testkit.SQSClient{client}, n)
}

// fakeSQS is the fake as a backend of the suite.
func fakeSQS() testkit.Backend[testkit.SQSClient] {
	clock := testkit.NewClock()
	return testkit.Backend[testkit.SQSClient]{
		New:     func(_ testkit.T, n int) []testkit.SQSClient { return clients(testkit.NewSQS(clock), n) },
		Advance: clock.Advance,
	}
}

// localstack#12457, #6766, #8724, #10460; elasticmq#354; moto#2433; floci#901:
// emulators that are wrong on group blocking, deduplication after delete and its scope.
func TestSQS_behaves_as_the_service(t *testing.T) { testkit.RunSQS(t, fakeSQS()) }

func TestSQS_suite_agrees_with_fauxqs(t *testing.T) {
	f := testkit.StartFauxqs(t)
	backend := testkit.Backend[testkit.SQSClient]{
		New:     func(_ testkit.T, n int) []testkit.SQSClient { return clients(f.Client, n) },
		Advance: time.Sleep, // a real backend's clock
	}
	diverges := testkit.FauxqsDivergences()
	for _, c := range testkit.SQSCases() {
		t.Run(c.Name, func(t *testing.T) {
			reason, known := diverges[c.Name]
			delete(diverges, c.Name)
			if !known {
				c.Run(t, backend)
				return
			}
			if failures := testkit.Failures(c, backend); len(failures) == 0 {
				t.Errorf("fauxqs passes this case now: take it off the list (%s)", reason)
			}
		})
	}
	for name := range maps.Keys(diverges) {
		t.Errorf("listed divergence is no case of the suite: %q", name)
	}
}

// newQueue is a queue of a fake in virtual time.
func newQueue(t *testing.T, attributes map[string]string) (*testkit.SQS, *testkit.Clock, string) {
	clock := testkit.NewClock()
	fake := testkit.NewSQS(clock)
	url, _ := testkit.CreateFIFO(t, fake, "q", 3, attributes)
	return fake, clock, url
}

func sendOne(t *testing.T, fake *testkit.SQS, url, group, id string) {
	t.Helper()
	if _, err := fake.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageGroupId: &group, MessageDeduplicationId: &id, MessageBody: &id}); err != nil {
		t.Fatal(err)
	}
}

func receiveBodies(t *testing.T, fake *testkit.SQS, in sqs.ReceiveMessageInput) []string {
	t.Helper()
	out, err := fake.ReceiveMessage(t.Context(), &in)
	if err != nil {
		t.Fatal(err)
	}
	bodies := []string{}
	for _, m := range out.Messages {
		bodies = append(bodies, *m.Body)
	}
	return bodies
}

func TestSQS_remembers_a_deduplication_id_for_exactly_five_minutes(t *testing.T) {
	fake, clock, url := newQueue(t, nil)
	sendOne(t, fake, url, "g", "one")
	clock.Advance(5*time.Minute - time.Millisecond)
	sendOne(t, fake, url, "g", "one")
	if visible, _ := fake.Depth(url); visible != 1 {
		t.Errorf("just before five minutes: %d messages, want 1", visible)
	}
	clock.Advance(time.Millisecond)
	sendOne(t, fake, url, "g", "one")
	if visible, _ := fake.Depth(url); visible != 2 {
		t.Errorf("at five minutes: %d messages, want 2", visible)
	}
}

func TestSQS_replays_an_attempt_for_five_minutes_only(t *testing.T) {
	fake, clock, url := newQueue(t, map[string]string{"VisibilityTimeout": "600"})
	sendOne(t, fake, url, "g", "one")
	in := sqs.ReceiveMessageInput{QueueUrl: &url, ReceiveRequestAttemptId: aws.String("a")}
	receiveBodies(t, fake, in)
	clock.Advance(5*time.Minute - time.Second)
	if got := receiveBodies(t, fake, in); len(got) != 1 {
		t.Errorf("within five minutes: %v", got)
	}
	clock.Advance(time.Second)
	if got := receiveBodies(t, fake, in); len(got) != 0 {
		t.Errorf("after five minutes: %v", got)
	}
}

func TestSQS_long_poll_ends_after_its_wait(t *testing.T) {
	fake, clock, url := newQueue(t, nil)
	done := make(chan []string, 1)
	go func() {
		done <- receiveBodies(t, fake, sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
	}()
	eventually(t, "the poll waits", func() bool { return clock.Pending() == 1 })
	clock.Advance(19 * time.Second)
	select {
	case got := <-done:
		t.Fatalf("returned %v after 19 s", got)
	default:
	}
	clock.Advance(time.Second)
	if got := <-done; len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestSQS_long_poll_sees_a_message_whose_visibility_ends(t *testing.T) {
	fake, clock, url := newQueue(t, map[string]string{"VisibilityTimeout": "5"})
	sendOne(t, fake, url, "g", "one")
	receiveBodies(t, fake, sqs.ReceiveMessageInput{QueueUrl: &url})
	done := make(chan []string, 1)
	go func() {
		done <- receiveBodies(t, fake, sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
	}()
	eventually(t, "the poll waits", func() bool { return clock.Pending() == 1 })
	clock.Advance(5 * time.Second)
	if got := <-done; !slices.Equal(got, []string{"one"}) {
		t.Errorf("got %v", got)
	}
}

func TestSQS_forgets_a_message_after_its_retention(t *testing.T) {
	fake, clock, url := newQueue(t, map[string]string{"MessageRetentionPeriod": "60"})
	sendOne(t, fake, url, "g", "one")
	clock.Advance(time.Minute)
	if got := receiveBodies(t, fake, sqs.ReceiveMessageInput{QueueUrl: &url}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestSQS_hides_messages_from_an_abandoned_poll_when_told_to(t *testing.T) {
	for _, hides := range []bool{false, true} {
		fake, clock, url := newQueue(t, nil)
		fake.SetCancelHides(hides)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := fake.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
			done <- err
		}()
		eventually(t, "the poll waits", func() bool { return clock.Pending() == 1 })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled poll: %v", err)
		}
		sendOne(t, fake, url, "g", "one")
		if _, hidden := fake.Depth(url); (hidden == 1) != hides {
			t.Errorf("cancelHides %v: %d messages are hidden", hides, hidden)
		}
	}
}

func TestSQS_injects_what_it_is_told(t *testing.T) {
	fake, _, url := newQueue(t, nil)
	send := func(id string, f testkit.SQSFault) (*sqs.SendMessageBatchOutput, error) {
		fake.SetFault(func(testkit.SQSCall) testkit.SQSFault { return f })
		defer fake.SetFault(nil)
		return fake.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("x"), MessageBody: &id, MessageGroupId: &id, MessageDeduplicationId: &id},
		}})
	}
	for _, c := range []struct {
		name    string
		fault   testkit.SQSFault
		fails   bool
		applied int
	}{
		{"refuse", testkit.SQSFault{Refuse: true}, true, 0},
		{"error", testkit.SQSFault{Err: errors.New("no")}, true, 0},
		{"lost-reply", testkit.SQSFault{LoseReply: true}, true, 1},
		{"failed-entry", testkit.SQSFault{Fail: map[string]types.BatchResultErrorEntry{"x": {Code: aws.String("InternalError")}}}, false, 0},
		{"omitted-entry", testkit.SQSFault{Omit: map[string]bool{"x": true}}, false, 1},
	} {
		before, _ := fake.Depth(url)
		out, err := send(c.name, c.fault)
		after, _ := fake.Depth(url)
		if (err != nil) != c.fails || after-before != c.applied {
			t.Errorf("%s: error %v, applied %d", c.name, err, after-before)
		}
		if err == nil && len(out.Successful) != 0 {
			t.Errorf("%s: entry succeeded", c.name)
		}
	}
}

// eventually polls a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestAHookThatWaitsDoesNotLockTheFake: a test may look into the fake while it holds what
// its hook waits for, and so may the hook.
func TestAHookThatWaitsDoesNotLockTheFake(t *testing.T) {
	fake, _, url := newQueue(t, nil)
	asked, goOn := make(chan struct{}), make(chan struct{})
	fake.SetFault(func(testkit.SQSCall) testkit.SQSFault {
		close(asked)
		<-goOn
		fake.Depth(url)
		return testkit.SQSFault{Refuse: true}
	})
	var all sync.WaitGroup
	all.Go(func() { _, _ = fake.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url}) })
	<-asked
	if visible, inFlight := fake.Depth(url); visible != 0 || inFlight != 0 {
		t.Errorf("depth %d and %d of an empty queue", visible, inFlight)
	}
	close(goOn)
	all.Wait()
}
