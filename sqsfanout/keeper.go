package sqsfanout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
)

// keeper keeps one message hidden from other receivers: it extends the visibility at
// every third of it until it is stopped, or tells that the message was lost.
type keeper struct {
	l       *line
	receipt string
	since   time.Time // the message was hidden at this instant or later

	mu       sync.Mutex
	deadline time.Time // see trusted
	lastErr  error
	lost     bool
	done     bool
	counted  bool // among the messages in hand
	onLost   func()
	stopTick func() bool
	stopLoss func() bool
	calls    sync.WaitGroup
}

func newKeeper(l *line, receipt string, since time.Time) *keeper {
	nothing := func() bool { return false }
	return &keeper{
		l: l, receipt: receipt, since: since, deadline: trusted(since, l.visibility),
		stopTick: nothing, stopLoss: nothing,
	}
}

// trusted is until when a handler may run whose message was hidden at sent for
// visibility. The last sixth is for the handler to return before any other replica can
// be handed the message.
func trusted(sent time.Time, visibility time.Duration) time.Time {
	return sent.Add(visibility - visibility/6)
}

func (k *keeper) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counted = true
	k.l.queue.InFlight.Add(context.Background(), 1)
	k.armLoss()
	k.armTick(k.since.Add(k.l.visibility / 3).Sub(k.now()))
}

func (k *keeper) now() time.Time { return k.l.config.Clock.Now() }

// watch makes f run when the message is lost, at once if it is already; nil ends that.
func (k *keeper) watch(f func()) {
	k.mu.Lock()
	lost := k.lost
	k.onLost = f
	k.mu.Unlock()
	if lost && f != nil {
		f()
	}
}

// stop ends the extensions and waits for one under way. It tells whether the message
// was lost before, and the last failure.
func (k *keeper) stop() (lost bool, err error) {
	k.mu.Lock()
	k.finish()
	lost, err = k.lost, k.lastErr
	k.mu.Unlock()
	k.calls.Wait()
	return lost, err
}

// isLost tells whether the message was lost.
func (k *keeper) isLost() (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost, k.lastErr
}

func (k *keeper) finish() {
	k.done = true
	if k.counted {
		k.counted = false
		k.l.queue.InFlight.Add(context.Background(), -1)
	}
	k.stopTick()
	k.stopLoss()
}

func (k *keeper) armLoss() {
	k.stopLoss = k.l.config.Clock.AfterFunc(k.deadline.Sub(k.now()), func() {
		k.mu.Lock()
		if k.done || k.now().Before(k.deadline) {
			k.mu.Unlock()
			return
		}
		k.lose()
	})
}

// lose is called with the mutex held and releases it.
func (k *keeper) lose() {
	k.lost = true
	k.finish()
	f := k.onLost
	k.mu.Unlock()
	if f != nil {
		f()
	}
}

func (k *keeper) armTick(d time.Duration) {
	k.stopTick = k.l.config.Clock.AfterFunc(d, func() {
		k.mu.Lock()
		if k.done {
			k.mu.Unlock()
			return
		}
		k.calls.Add(1)
		k.mu.Unlock()
		defer k.calls.Done()
		k.extend()
	})
}

func (k *keeper) extend() {
	sent := k.now()
	visibility := min(k.l.visibility, remaining(k.since, sent))
	if visibility < time.Second {
		return // SQS hides no message for longer; the deadline ends it
	}
	// Not cancelled by a stop: a handler that winds down still owns its message.
	ctx, cancel := context.WithTimeout(context.Background(), min(k.l.config.CallTimeout, k.l.visibility/3))
	_, err := k.l.api.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &k.l.queueURL, ReceiptHandle: &k.receipt, VisibilityTimeout: seconds(visibility),
	})
	cancel()

	k.mu.Lock()
	if k.done {
		k.mu.Unlock()
		return
	}
	switch {
	case err == nil:
		k.lastErr = nil
		k.deadline = trusted(sent, visibility)
		k.stopLoss()
		k.armLoss()
		k.armTick(k.l.visibility / 3)
	case isStale(err):
		k.lastErr = err
		k.lose()
		return
	default:
		k.lastErr = err
		k.armTick(k.l.visibility / 12)
	}
	k.mu.Unlock()
}

// remaining is how much longer a message may stay hidden that was received at since or
// later: 12 h in all, in whole seconds, with one to spare for the service's rounding.
func remaining(since, now time.Time) time.Duration {
	return (maxVisibility - now.Sub(since) - time.Second).Truncate(time.Second)
}

// seconds rounds up.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// isStale tells whether the queue said that a receipt no longer holds its message.
func isStale(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch bareCode(api.ErrorCode()) {
	case "MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue", "InvalidIdFormat":
		return true
	}
	return false
}
