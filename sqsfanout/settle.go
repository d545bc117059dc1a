package sqsfanout

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// This file has what ends a message in hand. Its requests are bounded by CallTimeout and
// not by a stop, which waits for them: they are what leaves nothing hidden.

func (l *line) settleContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), l.config.CallTimeout)
}

// delete removes a handled message. If that fails the group stops, because the message
// will be back ahead of the later ones, and is then recognised by the log.
func (l *line) delete(c Consumer, d *delivery) (deleted bool) {
	d.keeper.watch(nil) // an extension that crosses the deletion finds nothing to extend
	ctx, cancel := l.settleContext()
	defer cancel()
	_, err := l.api.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &l.queueURL, ReceiptHandle: d.message.ReceiptHandle})
	if err == nil {
		_, _ = d.keeper.stop()
		return true
	}
	l.signals.ConsumerDeleteFailed(c.Name, d.id(), err)
	l.hide(d, time.Second)
	return false
}

// hide gives a message up and lets it be received after delay. If that fails it is
// received after its visibility timeout.
func (l *line) hide(d *delivery, delay time.Duration) {
	if lost, _ := d.keeper.stop(); lost {
		return
	}
	delay = max(min(delay, remaining(d.keeper.since, l.config.Clock.Now())), 0)
	ctx, cancel := l.settleContext()
	defer cancel()
	_, _ = l.api.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &l.queueURL, ReceiptHandle: d.message.ReceiptHandle, VisibilityTimeout: seconds(delay),
	})
}

// release gives messages up that were not handled: others may receive them at once.
// Entries that the queue fails for its own reasons are tried again.
func (l *line) release(deliveries []*delivery) {
	var left []*delivery
	for _, d := range deliveries {
		if lost, _ := d.keeper.stop(); !lost {
			left = append(left, d)
		}
	}
	ctx, cancel := l.settleContext()
	defer cancel()
	for attempt := 1; len(left) > 0 && attempt <= 5; attempt++ {
		if attempt > 1 && !sleep(ctx, l.config.Clock, backoff(attempt-1)) {
			return
		}
		var failed []*delivery
		for start := 0; start < len(left); start += maxBatch {
			failed = append(failed, l.releaseBatch(ctx, left[start:min(start+maxBatch, len(left))])...)
		}
		left = failed
	}
}

// releaseBatch returns the messages that are worth another try.
func (l *line) releaseBatch(ctx context.Context, batch []*delivery) (again []*delivery) {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &l.queueURL}
	for i, d := range batch {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: d.message.ReceiptHandle, VisibilityTimeout: 0,
		})
	}
	out, err := l.api.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		return batch
	}
	settled := map[string]bool{}
	for _, r := range out.Successful {
		settled[aws.ToString(r.Id)] = true
	}
	for _, r := range out.Failed {
		settled[aws.ToString(r.Id)] = settled[aws.ToString(r.Id)] || r.SenderFault
	}
	for i, d := range batch {
		if !settled[strconv.Itoa(i)] {
			again = append(again, d)
		}
	}
	return again
}
