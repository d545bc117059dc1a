package testkit

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// ReceiveMessage hides up to MaxNumberOfMessages messages and returns them, waiting up
// to WaitTimeSeconds for the first. As with the SDK, 0 seconds of visibility or wait
// mean the queue's own. It returns when ctx ends, see [SQS.SetCancelHides].
func (s *SQS) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	fault, err := s.begin(ctx, SQSCall{"ReceiveMessage", aws.ToString(in.QueueUrl), nil, in})
	var out *sqs.ReceiveMessageOutput
	if err == nil {
		out, err = s.receive(ctx, in)
		out, err = sqsReply(ctx, fault, out, err)
	}
	if err != nil {
		return nil, &smithy.OperationError{ServiceID: "SQS", OperationName: "ReceiveMessage", Err: err}
	}
	return out, nil
}

func (s *SQS) receive(ctx context.Context, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	most := int(in.MaxNumberOfMessages)
	if most == 0 {
		most = 1
	}
	wait, visibility := q.seconds("ReceiveMessageWaitTimeSeconds"), q.seconds("VisibilityTimeout")
	if in.WaitTimeSeconds != 0 {
		wait = time.Duration(in.WaitTimeSeconds) * time.Second
	}
	if in.VisibilityTimeout != 0 {
		visibility = time.Duration(in.VisibilityTimeout) * time.Second
	}
	attemptID := aws.ToString(in.ReceiveRequestAttemptId)
	switch {
	case most < 1 || most > sqsMaxBatch:
		return nil, invalidParameter("MaxNumberOfMessages", most, "Must be between 1 and 10, if provided")
	case wait < 0 || wait > 20*time.Second:
		return nil, invalidParameter("WaitTimeSeconds", in.WaitTimeSeconds, "Must be >= 0 and <= 20, if provided")
	case visibility < 0 || visibility > sqsMaxVisibility*time.Second:
		return nil, invalidParameter("VisibilityTimeout", in.VisibilityTimeout, "Must be between 0 and 43200, if provided")
	case attemptID != "" && !sqsName(attemptID):
		return nil, invalidParameter("ReceiveRequestAttemptId", attemptID, "it can only include alphanumeric and punctuation characters, 1 to 128 in length")
	}
	system := map[string]bool{}
	for _, name := range in.MessageSystemAttributeNames {
		system[string(name)] = true
	}
	until := s.clock.Now().Add(wait)
	for {
		now := s.clock.Now()
		taken := q.replay(attemptID, visibility, now)
		if len(taken) == 0 {
			q.haunt(s, now)
			taken = q.take(s, most, visibility, now)
			q.remember(attemptID, taken, now)
		}
		if len(taken) > 0 || !now.Before(until) {
			out := &sqs.ReceiveMessageOutput{}
			for _, m := range taken {
				out.Messages = append(out.Messages, m.wire(system, in.MessageAttributeNames))
			}
			return out, nil
		}
		if !s.pause(ctx, q, until) {
			if s.cancelHides {
				q.ghosts = append(q.ghosts, &sqsGhost{most, visibility, until, attemptID})
			}
			return nil, ctx.Err()
		}
	}
}

// pause gives the mutex up until a message may have become receivable, until has come
// or ctx ends; it returns false for the latter.
func (s *SQS) pause(ctx context.Context, q *sqsQueue, until time.Time) bool {
	if at, ok := q.nextExpiry(); ok && at.Before(until) {
		until = at
	}
	changed, due := q.wake, make(chan struct{})
	stop := s.clock.AfterFunc(until.Sub(s.clock.Now()), func() { close(due) })
	s.mu.Unlock()
	defer s.mu.Lock()
	defer stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-due:
	}
	return true
}

// DeleteMessage removes a message in flight. Removing what is gone already is fine; a
// receipt whose visibility timeout has passed is refused.
func (s *SQS) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	return sqsCall(ctx, s, "DeleteMessage", aws.ToString(in.QueueUrl), nil, in, func(SQSFault) (*sqs.DeleteMessageOutput, error) {
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		return &sqs.DeleteMessageOutput{}, s.delete(q, aws.ToString(in.ReceiptHandle))
	})
}

// DeleteMessageBatch is DeleteMessage for up to ten messages.
func (s *SQS) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	ids := entryIDs(in.Entries, func(e types.DeleteMessageBatchRequestEntry) *string { return e.Id })
	return sqsCall(ctx, s, "DeleteMessageBatch", aws.ToString(in.QueueUrl), ids, in, func(fault SQSFault) (*sqs.DeleteMessageBatchOutput, error) {
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		if err := checkBatch(ids); err != nil {
			return nil, err
		}
		out := &sqs.DeleteMessageBatchOutput{}
		for _, e := range in.Entries {
			id := aws.ToString(e.Id)
			failed, ok := fault.Fail[id]
			if !ok {
				err := s.delete(q, aws.ToString(e.ReceiptHandle))
				if ok = err != nil; ok {
					failed = failedEntry(id, err)
				}
			}
			switch {
			case fault.Omit[id]:
			case ok:
				failed.Id = e.Id
				out.Failed = append(out.Failed, failed)
			default:
				out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
			}
		}
		return out, nil
	})
}

func (s *SQS) delete(q *sqsQueue, receipt string) error {
	now := s.clock.Now()
	m, gone, err := q.held(receipt, now)
	switch {
	case err != nil || gone:
		return err
	case m == nil:
		return invalidParameter("ReceiptHandle", receipt, "The receipt handle has expired")
	}
	q.remove(m)
	q.offer(m.group)
	q.haunt(s, now)
	return nil
}

// ChangeMessageVisibility hides a message in flight for VisibilityTimeout from now; 0
// makes it receivable at once.
func (s *SQS) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	return sqsCall(ctx, s, "ChangeMessageVisibility", aws.ToString(in.QueueUrl), nil, in, func(SQSFault) (*sqs.ChangeMessageVisibilityOutput, error) {
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		return &sqs.ChangeMessageVisibilityOutput{}, s.change(q, aws.ToString(in.ReceiptHandle), in.VisibilityTimeout)
	})
}

// ChangeMessageVisibilityBatch is ChangeMessageVisibility for up to ten messages.
func (s *SQS) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	ids := entryIDs(in.Entries, func(e types.ChangeMessageVisibilityBatchRequestEntry) *string { return e.Id })
	return sqsCall(ctx, s, "ChangeMessageVisibilityBatch", aws.ToString(in.QueueUrl), ids, in, func(fault SQSFault) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		if err := checkBatch(ids); err != nil {
			return nil, err
		}
		out := &sqs.ChangeMessageVisibilityBatchOutput{}
		for _, e := range in.Entries {
			id := aws.ToString(e.Id)
			failed, ok := fault.Fail[id]
			if !ok {
				err := s.change(q, aws.ToString(e.ReceiptHandle), e.VisibilityTimeout)
				if ok = err != nil; ok {
					failed = failedEntry(id, err)
				}
			}
			switch {
			case fault.Omit[id]:
			case ok:
				failed.Id = e.Id
				out.Failed = append(out.Failed, failed)
			default:
				out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
			}
		}
		return out, nil
	})
}

func (s *SQS) change(q *sqsQueue, receipt string, seconds int32) error {
	now := s.clock.Now()
	m, gone, err := q.held(receipt, now)
	switch {
	case err != nil:
		return err
	case seconds < 0 || seconds > sqsMaxVisibility:
		return invalidParameter("VisibilityTimeout", seconds, "Must be between 0 and 43200")
	case gone:
		return invalidParameter("ReceiptHandle", receipt, "Message does not exist or is not available for visibility timeout change")
	case m == nil:
		return &types.MessageNotInflight{Message: aws.String("The specified message isn't in flight.")}
	}
	until := now.Add(time.Duration(seconds) * time.Second)
	if until.Sub(m.receivedAt) > sqsMaxVisibility*time.Second {
		return invalidParameter("VisibilityTimeout", seconds, "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
	}
	m.visibleAt = until
	if seconds == 0 {
		delete(q.inFlight, m.sequence)
		q.offer(m.group)
		q.haunt(s, now)
	}
	return nil
}
