package sqsfanout

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// handle brings one message to its end: deleted, released or left to its visibility
// timeout. It tells whether the group may go on.
func (l *line) handle(g *group, d *delivery) (proceed bool) {
	ctx, call := l.queue.Process.BeginLinked(context.Background(), d.id(), originOf(d.message))
	h := handling{call: call, consumer: unknownConsumer, outcome: "released"}
	defer h.end(l)
	if l.isStopping() {
		l.release([]*delivery{d})
		return false
	}
	domain, record, err := Decode(d.message)
	c, known := l.consumers[domain]
	if err == nil && !known {
		err = fmt.Errorf("no consumer of domain %q runs here", domain)
	}
	if err != nil {
		h.becomes("bad", err)
		l.signals.ConsumerBadMessage(l.name, d.id(), err)
		return l.failed(d, defaultRetryDelay(d.receives, nil))
	}

	h.consumer = c.Name
	var result semantic.AcquireResult
	ran := false
	if lost, _ := d.keeper.isLost(); !lost {
		result, ran, err = l.attempt(ctx, call.Carry(l.handlers), g, c, d, record)
	}
	if lost, cause := d.keeper.isLost(); lost {
		h.becomes("lost", cause)
		l.signals.ConsumerHeartbeatLost(c.Name, record.OrganizationID, record.RecordID, cause)
		return false
	}
	switch {
	case ran && err == nil:
		h.becomes("handled", nil)
		return l.delete(c, d)
	case !result.Acquired && result.Reason == semantic.ReasonDuplicate && result.Record.Status == semantic.StatusCompleted:
		h.becomes("duplicate", nil)
		return l.delete(c, d)
	case !result.Acquired && result.Reason == semantic.ReasonDuplicate:
		h.becomes("pending", nil)
		// Its handler runs elsewhere or died. Come back when it may be taken over.
		age := l.config.Clock.Now().Sub(result.Record.AttemptedAt)
		l.hide(d, min(max(c.TakeOverPendingAfter-age, time.Second), c.TakeOverPendingAfter))
		return false
	case err == nil:
		err = fmt.Errorf("idempotency log refused the record: %s", result.Reason)
	}
	cut := l.isStopping() && (errors.Is(err, ErrStopping) || errors.Is(err, context.Canceled))
	if !cut { // a handler that a stop cut off has not failed
		h.becomes("failed", err)
		l.signals.ConsumerHandlerFailed(c.Name, record.OrganizationID, record.RecordID, d.receives, err)
	}
	if own := (*retryAfterError)(nil); l.isStopping() && !errors.As(err, &own) {
		l.release([]*delivery{d})
		return false
	}
	return l.failed(d, c.delay(d.receives, err))
}

// failed brings a message back after delay and stops its group. At its last receive the
// queue will not deliver it again but move it to the dead-letter queue: then the group
// goes on, or those behind it, received as often, would die with it untried.
func (l *line) failed(d *delivery, delay time.Duration) (proceed bool) {
	last := l.maxReceives > 0 && d.receives >= l.maxReceives
	if last {
		delay = 0
	}
	l.hide(d, delay)
	return last
}

// attempt runs the handler behind the idempotency log. ran tells whether it ran; err is
// then its own error and nil if it succeeded, whatever became of the log's record: an
// effect that is done must not be repeated because the log could not be told. The log is
// asked under ctx, the handler runs under handlers.
func (l *line) attempt(ctx, handlers context.Context, g *group, c Consumer, d *delivery, record semantic.FanoutRecord) (result semantic.AcquireResult, ran bool, err error) {
	work, cancel := context.WithCancelCause(handlers)
	defer cancel(nil)
	d.keeper.watch(func() {
		cancel(ErrVisibilityLost)
		l.forfeit(g)
	})

	var handled error
	result, err = semantic.RunOnce(ctx, boundedLog{l.log, l.config}, semantic.IdempotencyRequest{
		OrganizationID: record.OrganizationID, Domain: c.Domain, Key: logKey(record),
		TTLDays: c.RememberDays, RetryFailed: true, TakeOverPendingAfter: c.TakeOverPendingAfter,
	}, func(_ context.Context, attempt semantic.IdempotencyRecord) (map[string]string, error) {
		if cause := context.Cause(work); cause != nil {
			handled = cause // stopped or lost while the log was asked: nothing was done
			return nil, handled
		}
		ran = true
		defer l.track(fmt.Sprintf("%s %s/%s", c.Name, record.OrganizationID, record.RecordID))()
		handled = call(context.WithValue(work, deliveryKey{}, Delivery{attempt, d.id(), d.receives}), c.Handle, record)
		return map[string]string{"consumer": c.Name, "message_id": d.id()}, handled
	})
	if ran && handled == nil {
		return result, true, nil
	}
	return result, ran, err
}

// call runs the handler on a goroutine of its own and waits for it, so that a panic or
// runtime.Goexit ends nothing else.
func call(ctx context.Context, handle func(context.Context, semantic.FanoutRecord) error, r semantic.FanoutRecord) error {
	err := errors.New("handler ended its goroutine without returning")
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("handler panicked: %v\n%s", p, debug.Stack())
			}
		}()
		err = handle(ctx, r)
	}()
	<-done
	return err
}

// boundedLog bounds each question to the log, and tries to finalize more than once.
type boundedLog struct {
	semantic.IdempotencyLog
	config Config
}

func (b boundedLog) TryAcquire(ctx context.Context, req semantic.IdempotencyRequest) semantic.AcquireResult {
	ctx, cancel := context.WithTimeout(ctx, b.config.CallTimeout)
	defer cancel()
	return b.IdempotencyLog.TryAcquire(ctx, req)
}

func (b boundedLog) Finalize(ctx context.Context, id semantic.RecordID, f semantic.Finalization) error {
	for attempt := 1; ; attempt++ {
		err := b.IdempotencyLog.Finalize(ctx, id, f)
		passing := errors.Is(err, semantic.ErrUnavailable) || errors.Is(err, semantic.ErrUnknown)
		if !passing || attempt == 3 || !sleep(ctx, b.config.Clock, backoff(attempt)) {
			return err
		}
	}
}
