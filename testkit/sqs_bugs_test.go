package testkit

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// sqsBug is an SQS that breaks one promise: a hook before and after each request.
type sqsBug struct {
	*SQS
	before func(s *SQS, in any)
	after  func(s *SQS, in any)
	skip   func(in any) bool // answer without doing anything
}

// each runs f for every queue with the fake locked.
func (s *SQS) each(f func(q *sqsQueue)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		f(q)
	}
}

func buggy[In, Out any](b *sqsBug, ctx context.Context, in *In, real func(context.Context, *In, ...func(*sqs.Options)) (*Out, error)) (*Out, error) {
	if b.skip != nil && b.skip(in) {
		return new(Out), nil
	}
	if b.before != nil {
		b.before(b.SQS, in)
	}
	out, err := real(ctx, in)
	if b.after != nil {
		b.after(b.SQS, in)
	}
	return out, err
}

func (b *sqsBug) CreateQueue(ctx context.Context, in *sqs.CreateQueueInput, _ ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error) {
	return buggy(b, ctx, in, b.SQS.CreateQueue)
}

func (b *sqsBug) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	return buggy(b, ctx, in, b.SQS.SendMessageBatch)
}

func (b *sqsBug) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	return buggy(b, ctx, in, b.SQS.ReceiveMessage)
}

func (b *sqsBug) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	return buggy(b, ctx, in, b.SQS.DeleteMessage)
}

func (b *sqsBug) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	return buggy(b, ctx, in, b.SQS.ChangeMessageVisibility)
}

func (b *sqsBug) PurgeQueue(ctx context.Context, in *sqs.PurgeQueueInput, _ ...func(*sqs.Options)) (*sqs.PurgeQueueOutput, error) {
	return buggy(b, ctx, in, b.SQS.PurgeQueue)
}

// TestSQSSuiteBites shows that each broken SQS fails the case named for it; the
// divergences of fauxqs show the same of seven more.
func TestSQSSuiteBites(t *testing.T) {
	forget := func(s *SQS) { s.each(func(q *sqsQueue) { clear(q.dedup); q.dedupOrder = nil }) }
	for _, seeded := range []struct {
		bug  string
		fail string // the case that must catch it
		sqsBug
	}{
		{"nothing is deduplicated", "a duplicate is accepted and not delivered, also after the first was deleted", sqsBug{
			before: func(s *SQS, in any) {
				if _, ok := in.(*sqs.SendMessageBatchInput); ok {
					forget(s)
				}
			}}},
		{"deduplication is forgotten on delete", "a duplicate is accepted and not delivered, also after the first was deleted", sqsBug{
			after: func(s *SQS, in any) {
				if _, ok := in.(*sqs.DeleteMessageInput); ok {
					forget(s)
				}
			}}},
		{"groups are not blocked", "a group is blocked while one of its messages is in flight, and no other group is", sqsBug{
			after: func(s *SQS, in any) {
				if _, ok := in.(*sqs.ReceiveMessageInput); ok {
					s.each(func(q *sqsQueue) {
						for _, m := range q.inFlight {
							if rest := q.groups[m.group]; len(rest) > 1 {
								rest[1].group = "unblocked"
								q.groups[m.group], q.groups["unblocked"] = rest[:1], rest[1:]
								q.offer("unblocked")
							}
						}
					})
				}
			}}},
		{"scope of the queue works as scope of the group", "the same deduplication id in another group is a duplicate when the scope is the queue", sqsBug{
			after: func(s *SQS, in any) {
				s.each(func(q *sqsQueue) { q.attributes["DeduplicationScope"] = "messageGroup" })
			}}},
		{"a message cannot be released", "visibility 0 releases at once and keeps the group's order", sqsBug{
			skip: func(in any) bool {
				c, ok := in.(*sqs.ChangeMessageVisibilityInput)
				return ok && c.VisibilityTimeout == 0
			}}},
		{"a released message goes to the end of its group", "visibility 0 releases at once and keeps the group's order", sqsBug{
			after: func(s *SQS, in any) {
				if _, ok := in.(*sqs.ChangeMessageVisibilityInput); ok {
					s.each(func(q *sqsQueue) {
						for g, messages := range q.groups {
							q.groups[g] = append(messages[1:len(messages):len(messages)], messages[0])
						}
					})
				}
			}}},
		{"visibility never ends", "a message is received again when its visibility timeout has passed", sqsBug{
			before: func(_ *SQS, in any) {
				if r, ok := in.(*sqs.ReceiveMessageInput); ok {
					r.VisibilityTimeout = 3600
				}
			}}},
		{"extensions are ignored", "an extended message stays hidden", sqsBug{
			skip: func(in any) bool { _, ok := in.(*sqs.ChangeMessageVisibilityInput); return ok }}},
		{"nothing is redriven", "a message received too often goes to the dead-letter queue and unblocks its group", sqsBug{
			before: func(_ *SQS, in any) {
				if c, ok := in.(*sqs.CreateQueueInput); ok {
					delete(c.Attributes, "RedrivePolicy")
				}
			}}},
		{"attributes are lost", "message and system attributes come back", sqsBug{
			before: func(_ *SQS, in any) {
				if r, ok := in.(*sqs.ReceiveMessageInput); ok {
					r.MessageAttributeNames = nil
				}
			}}},
		{"a batch of eleven is cut", "a batch without entries, of 11, with equal or bad ids, or over 1 MiB is refused whole", sqsBug{
			before: func(_ *SQS, in any) {
				if b, ok := in.(*sqs.SendMessageBatchInput); ok && len(b.Entries) > 10 {
					b.Entries = b.Entries[:10]
				}
			}}},
		{"bad characters are replaced", "an entry with forbidden characters or an oversized one fails alone", sqsBug{
			before: func(_ *SQS, in any) {
				if b, ok := in.(*sqs.SendMessageBatchInput); ok {
					for i, e := range b.Entries {
						if !sqsText(*e.MessageBody) {
							b.Entries[i] = types.SendMessageBatchRequestEntry{Id: e.Id, MessageGroupId: e.MessageGroupId, MessageDeduplicationId: e.MessageDeduplicationId, MessageBody: e.Id}
						}
					}
				}
			}}},
		{"a purge does nothing", "a queue counts what is visible and what is in flight, and can be purged", sqsBug{
			skip: func(in any) bool { _, ok := in.(*sqs.PurgeQueueInput); return ok }}},
	} {
		t.Run(seeded.bug, func(t *testing.T) {
			clock := NewClock()
			wantFailure(t, seeded.fail, SQSCases(), Backend[SQSClient]{
				New: func(_ T, n int) []SQSClient {
					bug := seeded.sqsBug
					bug.SQS = NewSQS(clock)
					clients := make([]SQSClient, n)
					for i := range clients {
						clients[i] = &bug
					}
					return clients
				},
				Advance: clock.Advance,
			})
		})
	}
}
