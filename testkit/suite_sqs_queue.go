package testkit

import (
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// fifo is one new queue in a case of the suite.
type fifo struct {
	t       T
	b       Backend[SQSClient]
	c       SQSClient
	url     string
	deadURL string
}

func newFIFO(t T, b Backend[SQSClient], attributes map[string]string) *fifo {
	f := &fifo{t: t, b: b, c: b.New(t, 1)[0]}
	f.url, f.deadURL = CreateFIFO(t, f.c, "case-"+rand.Text(), 3, attributes)
	return f
}

func entry(id, group, dedupID, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageGroupId: &group, MessageDeduplicationId: &dedupID, MessageBody: &body}
}

// batch sends entries and returns the ids that succeeded and the codes of those that did not.
func (f *fifo) batch(entries ...types.SendMessageBatchRequestEntry) (ok []string, failed map[string]string, err error) {
	out, err := f.c.SendMessageBatch(f.t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &f.url, Entries: entries})
	if err != nil {
		return nil, nil, err
	}
	failed = map[string]string{}
	for _, e := range out.Successful {
		ok = append(ok, *e.Id)
	}
	for _, e := range out.Failed {
		failed[*e.Id] = aws.ToString(e.Code)
		if !e.SenderFault {
			f.t.Errorf("entry %s: SenderFault is false for %s", *e.Id, aws.ToString(e.Code))
		}
	}
	return ok, failed, nil
}

// send stores bodies in one group; each body is its own deduplication id.
func (f *fifo) send(group string, bodies ...string) {
	f.t.Helper()
	for _, body := range bodies {
		ok, failed, err := f.batch(entry("0", group, body, body))
		if err != nil || len(ok) != 1 {
			f.t.Fatalf("sending %q failed: %v %v", body, failed, err)
		}
	}
}

func (f *fifo) receiveFrom(url string, most int32) []types.Message {
	f.t.Helper()
	out, err := f.c.ReceiveMessage(f.t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: most,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		MessageAttributeNames:       []string{"All"},
	})
	if err != nil {
		f.t.Fatalf("receiving failed: %v", err)
	}
	return out.Messages
}

func (f *fifo) receive(most int32) []types.Message { f.t.Helper(); return f.receiveFrom(f.url, most) }

// all receives until nothing is receivable.
func (f *fifo) all() (messages []types.Message) {
	f.t.Helper()
	for {
		some := f.receive(10)
		if len(some) == 0 {
			return messages
		}
		messages = append(messages, some...)
	}
}

func (f *fifo) delete(m types.Message) error {
	_, err := f.c.DeleteMessage(f.t.Context(), &sqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (f *fifo) hide(m types.Message, seconds int32) error {
	_, err := f.c.ChangeMessageVisibility(f.t.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
	})
	return err
}

func bodiesOf(messages []types.Message) []string {
	bodies := make([]string, len(messages))
	for i, m := range messages {
		bodies[i] = aws.ToString(m.Body)
	}
	return bodies
}

func (f *fifo) want(promise string, got []types.Message, bodies ...string) {
	f.t.Helper()
	if !slices.Equal(bodiesOf(got), bodies) {
		f.t.Errorf("%s: got %q, want %q", promise, bodiesOf(got), bodies)
	}
}

func (f *fifo) wantCode(err error, codes ...string) {
	f.t.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) || !slices.ContainsFunc(codes, func(c string) bool {
		return api.ErrorCode() == c || strings.HasSuffix(api.ErrorCode(), "."+c)
	}) {
		f.t.Errorf("got error %v, want code %v", err, codes)
	}
}

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}
