package testkit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// SQSClient is the part of SQS that the suite checks; *sqs.Client and [SQS] have it.
type SQSClient interface {
	SQSAdmin
	GetQueueUrl(ctx context.Context, in *sqs.GetQueueUrlInput, _ ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	PurgeQueue(ctx context.Context, in *sqs.PurgeQueueInput, _ ...func(*sqs.Options)) (*sqs.PurgeQueueOutput, error)
	SendMessage(ctx context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
	SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
	ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error)
	ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
}

var (
	_ SQSClient = (*SQS)(nil)
	_ SQSClient = (*sqs.Client)(nil)
)

// RunSQS checks that b behaves as SQS FIFO queues do.
func RunSQS(t *testing.T, b Backend[SQSClient]) {
	t.Helper()
	runCases(t, b, SQSCases())
}

// SQSCases are what Coord depends on of SQS FIFO queues. They need no fault injection
// and let at most three seconds pass.
func SQSCases() []Case[SQSClient] {
	var cases []Case[SQSClient]
	add := func(name string, attributes map[string]string, run func(f *fifo)) {
		cases = append(cases, Case[SQSClient]{Name: name, Run: func(t T, b Backend[SQSClient]) { run(newFIFO(t, b, attributes)) }})
	}

	add("a duplicate is accepted and not delivered, also after the first was deleted", nil, func(f *fifo) {
		f.send("g", "one", "one")
		got := f.all()
		f.want("a duplicate was sent", got, "one")
		if err := f.delete(got[0]); err != nil {
			f.t.Fatalf("delete: %v", err)
		}
		f.send("g", "one")
		f.want("a duplicate was sent after the deletion", f.all())
	})
	add("the same deduplication id in another group is a duplicate when the scope is the queue", nil, func(f *fifo) {
		f.send("g", "one")
		f.send("h", "one")
		f.want("two groups, one id", f.all(), "one")
	})
	add("the same deduplication id in another group is delivered when the scope is the group",
		map[string]string{"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}, func(f *fifo) {
			f.send("g", "one", "one")
			f.send("h", "one")
			f.want("two groups, one id", f.all(), "one", "one")
		})
	add("a group is blocked while one of its messages is in flight, and no other group is", nil, func(f *fifo) {
		f.send("g", "g1", "g2")
		f.send("h", "h1")
		first := f.receive(1)
		f.want("first receive", first, "g1")
		f.want("while g1 is in flight", f.receive(10), "h1")
		if err := f.delete(first[0]); err != nil {
			f.t.Fatalf("delete: %v", err)
		}
		f.want("after g1 was deleted", f.receive(10), "g2")
	})
	add("one receive takes several messages of a group in their order", nil, func(f *fifo) {
		f.send("g", "g1", "g2", "g3")
		f.want("receive of two", f.receive(2), "g1", "g2")
		f.want("the third is behind them", f.receive(10))
	})
	add("visibility 0 releases at once and keeps the group's order", nil, func(f *fifo) {
		f.send("g", "g1", "g2")
		got := f.receive(1)
		if err := f.hide(got[0], 0); err != nil {
			f.t.Fatalf("release: %v", err)
		}
		again := f.receive(1)
		f.want("after the release", again, "g1")
		if n := again[0].Attributes["ApproximateReceiveCount"]; n != "2" {
			f.t.Errorf("receive count is %s, want 2", n)
		}
	})
	add("a message is received again when its visibility timeout has passed", map[string]string{"VisibilityTimeout": "1"}, func(f *fifo) {
		f.send("g", "g1", "g2")
		f.want("first receive", f.receive(1), "g1")
		f.want("within the timeout", f.receive(10))
		f.b.Advance(1100 * time.Millisecond)
		f.want("after the timeout", f.receive(1), "g1")
	})
	add("an extended message stays hidden", map[string]string{"VisibilityTimeout": "1"}, func(f *fifo) {
		f.send("g", "g1")
		if err := f.hide(f.receive(1)[0], 30); err != nil {
			f.t.Fatalf("extend: %v", err)
		}
		f.b.Advance(1100 * time.Millisecond)
		f.want("after the first timeout", f.receive(10))
	})
	add("a receipt whose visibility timeout has passed deletes nothing", map[string]string{"VisibilityTimeout": "1"}, func(f *fifo) {
		f.send("g", "g1")
		stale := f.receive(1)
		f.b.Advance(1100 * time.Millisecond)
		f.want("after the timeout", f.receive(1), "g1")
		f.wantCode(f.delete(stale[0]), "InvalidParameterValue")
		f.b.Advance(1100 * time.Millisecond)
		f.want("after the stale delete", f.receive(1), "g1")
	})
	add("a receipt whose visibility timeout has passed cannot be extended", map[string]string{"VisibilityTimeout": "1"}, func(f *fifo) {
		f.send("g", "g1")
		stale := f.receive(1)
		f.b.Advance(1100 * time.Millisecond)
		f.want("after the timeout", f.receive(1), "g1")
		f.wantCode(f.hide(stale[0], 30), "MessageNotInflight")
	})
	add("deleting twice is fine", nil, func(f *fifo) {
		f.send("g", "g1")
		got := f.receive(1)
		for range 2 {
			if err := f.delete(got[0]); err != nil {
				f.t.Errorf("delete: %v", err)
			}
		}
	})
	add("more than 12 hours of visibility in all are refused", nil, func(f *fifo) {
		f.send("g", "g1")
		got := f.receive(1)
		f.b.Advance(1100 * time.Millisecond)
		f.wantCode(f.hide(got[0], 12*60*60), "InvalidParameterValue")
	})
	add("a message received too often goes to the dead-letter queue and unblocks its group", nil, func(f *fifo) {
		f.send("g", "g1", "g2")
		for range 3 {
			got := f.receive(1)
			f.want("before the limit", got, "g1")
			if err := f.hide(got[0], 0); err != nil {
				f.t.Fatalf("release: %v", err)
			}
		}
		f.want("after the limit", f.receive(1), "g2")
		f.want("the dead-letter queue", f.receiveFrom(f.deadURL, 10), "g1")
	})
	add("the same attempt id receives the same messages again", nil, func(f *fifo) {
		f.send("g", "g1")
		try := func(id string) []types.Message {
			out, err := f.c.ReceiveMessage(f.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &f.url, MaxNumberOfMessages: 10, ReceiveRequestAttemptId: &id})
			if err != nil {
				f.t.Fatalf("receive: %v", err)
			}
			return out.Messages
		}
		first := try("a")
		f.want("first try", first, "g1")
		f.want("another attempt", try("b"))
		again := try("a")
		f.want("same attempt", again, "g1")
		if err := f.delete(again[0]); err != nil {
			f.t.Errorf("deleting by the replayed receipt: %v", err)
		}
		f.want("after the deletion", try("a"))
	})
	add("a long poll returns when a message arrives", nil, func(f *fifo) {
		done := make(chan []types.Message, 1)
		go func() {
			out, err := f.c.ReceiveMessage(f.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &f.url, WaitTimeSeconds: 20})
			if err != nil {
				f.t.Errorf("receive: %v", err)
				out = &sqs.ReceiveMessageOutput{}
			}
			done <- out.Messages
		}()
		f.send("g", "g1")
		select {
		case got := <-done:
			f.want("long poll", got, "g1")
		case <-time.After(10 * time.Second):
			f.t.Errorf("long poll did not return for a message within 10 s")
		}
	})
	add("message and system attributes come back", nil, func(f *fifo) {
		e := entry("0", "g", "d", "body")
		e.MessageAttributes = map[string]types.MessageAttributeValue{"a.b": text("héllo")}
		if _, failed, err := f.batch(e); err != nil || len(failed) > 0 {
			f.t.Fatalf("send: %v %v", failed, err)
		}
		got := f.receive(1)
		f.want("receive", got, "body")
		m := got[0]
		if v := m.MessageAttributes["a.b"]; aws.ToString(v.StringValue) != "héllo" || aws.ToString(v.DataType) != "String" {
			f.t.Errorf("attribute is %v", v)
		}
		for name, value := range map[string]string{"MessageGroupId": "g", "MessageDeduplicationId": "d", "ApproximateReceiveCount": "1"} {
			if m.Attributes[name] != value {
				f.t.Errorf("%s is %q, want %q", name, m.Attributes[name], value)
			}
		}
	})
	add("a batch without entries, of 11, with equal or bad ids, or over 1 MiB is refused whole", nil, func(f *fifo) {
		_, _, err := f.batch([]types.SendMessageBatchRequestEntry{}...)
		f.wantCode(err, "EmptyBatchRequest")
		var many []types.SendMessageBatchRequestEntry
		for i := range 11 {
			many = append(many, entry(fmt.Sprint(i), "g", fmt.Sprint("many", i), "x"))
		}
		_, _, err = f.batch(many...)
		f.wantCode(err, "TooManyEntriesInBatchRequest")
		_, _, err = f.batch(entry("0", "g", "d1", "x"), entry("0", "g", "d2", "x"))
		f.wantCode(err, "BatchEntryIdsNotDistinct")
		_, _, err = f.batch(entry("a b", "g", "d3", "x"))
		f.wantCode(err, "InvalidBatchEntryId")
		half := strings.Repeat("x", 1<<19)
		_, _, err = f.batch(entry("0", "g", "d4", half), entry("1", "g", "d5", half+"y"))
		f.wantCode(err, "BatchRequestTooLong")
		f.want("after refused batches", f.all())
		ok, _, err := f.batch(entry("0", "g", "d6", half), entry("1", "g", "d7", half))
		if err != nil || len(ok) != 2 {
			f.t.Errorf("exactly 1 MiB is allowed: %v %v", ok, err)
		}
	})
	add("an entry with forbidden characters or an oversized one fails alone", map[string]string{"MaximumMessageSize": "1024"}, func(f *fifo) {
		ok, failed, err := f.batch(entry("good", "g", "d1", "fine\t\n"), entry("bad", "g", "d2", "a\x01b"),
			entry("big", "g", "d3", strings.Repeat("x", 1025)), entry("last", "g", "d4", "fine too"))
		if err != nil || !slices.Equal(ok, []string{"good", "last"}) {
			f.t.Fatalf("succeeded: %v %v", ok, err)
		}
		if failed["bad"] != "InvalidMessageContents" || failed["big"] != "InvalidParameterValue" {
			f.t.Errorf("failed: %v", failed)
		}
	})
	add("characters beyond the basic plane are allowed", nil, func(f *fifo) {
		ok, failed, err := f.batch(entry("0", "g", "d", "😀"))
		if err != nil || len(ok) != 1 {
			f.t.Fatalf("send: %v %v", failed, err)
		}
		f.want("receive", f.all(), "😀")
	})
	add("a group or deduplication id with a space or of 129 characters fails its entry", nil, func(f *fifo) {
		long := strings.Repeat("x", 129)
		ok, failed, err := f.batch(entry("0", "g g", "d0", "x"), entry("1", long, "d1", "x"), entry("2", "g", "d 2", "x"),
			entry("3", "g", long, "x"), entry("4", long[:128], "!~", "x"))
		if err != nil || !slices.Equal(ok, []string{"4"}) || len(failed) != 4 {
			f.t.Errorf("succeeded %v, failed %v: %v", ok, failed, err)
		}
	})
	add("batches of visibility changes and deletes answer for each entry", nil, func(f *fifo) {
		f.send("g", "g1")
		f.send("h", "h1")
		got := f.all()
		f.want("receive", got, "g1", "h1")
		out, err := f.c.ChangeMessageVisibilityBatch(f.t.Context(), &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &f.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("0"), ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 0},
			{Id: aws.String("1"), ReceiptHandle: aws.String("nonsense"), VisibilityTimeout: 0},
		}})
		if err != nil || len(out.Successful) != 1 || len(out.Failed) != 1 || !out.Failed[0].SenderFault {
			f.t.Fatalf("visibility batch: %+v %v", out, err)
		}
		f.want("after the release", f.receive(10), "g1")
		del, err := f.c.DeleteMessageBatch(f.t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &f.url, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("1"), ReceiptHandle: got[1].ReceiptHandle},
		}})
		if err != nil || len(del.Successful) != 1 {
			f.t.Errorf("delete batch: %+v %v", del, err)
		}
	})
	add("a queue counts what is visible and what is in flight, and can be purged", nil, func(f *fifo) {
		f.send("g", "g1", "g2")
		f.receive(1)
		count := func() [2]string {
			out, err := f.c.GetQueueAttributes(f.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &f.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
			if err != nil {
				f.t.Fatalf("attributes: %v", err)
			}
			return [2]string{out.Attributes["ApproximateNumberOfMessages"], out.Attributes["ApproximateNumberOfMessagesNotVisible"]}
		}
		if got := count(); got != [2]string{"1", "1"} {
			f.t.Errorf("counts are %v, want 1 and 1", got)
		}
		if _, err := f.c.PurgeQueue(f.t.Context(), &sqs.PurgeQueueInput{QueueUrl: &f.url}); err != nil {
			f.t.Fatalf("purge: %v", err)
		}
		if got := count(); got != [2]string{"0", "0"} {
			f.t.Errorf("counts after the purge are %v", got)
		}
	})
	add("an unknown queue is refused by name", nil, func(f *fifo) {
		url := f.url + "x"
		_, err := f.c.SendMessage(f.t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x")})
		f.wantCode(err, "QueueDoesNotExist", "NonExistentQueue")
	})
	return cases
}
