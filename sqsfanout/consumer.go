package sqsfanout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// Consumer defines who handles the records of one domain. It is a definition only; a
// [Host] runs it.
type Consumer struct {
	// Name names the consumer in signals and errors; default Domain.
	Name string
	// Domain is the domain of the records, as given to Enqueue.
	Domain string
	// Handle does the work of one record. It runs at most once for each organisation,
	// record and version that it returned nil for, as far as an idempotency log can
	// promise that; see [Delivery] for what a handler may want to know of an earlier
	// attempt. An error or a panic brings the record back after a delay, ahead of the
	// later ones of its group; see [RetryAfter].
	//
	// ctx ends when the host stops (cause [ErrStopping]) and when the message can no
	// longer be kept from other replicas (cause [ErrVisibilityLost]). Return promptly
	// then: another replica may start the same record.
	Handle func(ctx context.Context, r semantic.FanoutRecord) error

	// Concurrency is how many groups this replica handles at once, 1 to 1,000; default
	// 10. Consumers whose domains share a queue share their workers.
	Concurrency int
	// Visibility is how soon after a crash another replica takes over, 1 s to 12 h in
	// whole seconds and at least twice Config.PollWait; default 30 s. It does not
	// limit Handle: while that runs, visibility is extended, up to SQS's 12 h in all.
	Visibility time.Duration
	// RememberDays is how long a handled record is remembered, 1 to
	// [semantic.MaxTTLDays]; default 15, which is longer than SQS keeps any message.
	RememberDays int
	// TakeOverPendingAfter is how old an attempt must be that did not end before
	// another takes its place; more than Visibility, default twice that. Lengthen it
	// where a handler may run on for long after its context has ended.
	TakeOverPendingAfter time.Duration
	// RetryDelay is how long a failed record and its group wait; receives is how often
	// it was received. The default doubles from 1 s to 1 min.
	RetryDelay func(receives int, err error) time.Duration
}

// Causes of a handler's context that has ended.
var (
	// ErrStopping: the host stops; the record is handled again elsewhere.
	ErrStopping = errors.New("consumer is stopping")
	// ErrVisibilityLost: the message could not be kept hidden from other replicas.
	ErrVisibilityLost = errors.New("message visibility was lost")
)

// maxVisibility is SQS's limit, counted from the receive.
const maxVisibility = 12 * time.Hour

// settled returns the consumer with its defaults filled in.
func (c Consumer) settled(config Config) (Consumer, error) {
	if c.Name == "" {
		c.Name = c.Domain
	}
	var bad []error
	refuse := func(setting string, value any, allowed string) {
		bad = append(bad, fmt.Errorf("consumer %q: %s: %v: want %s", c.Name, setting, value, allowed))
	}
	if err := validateName("consumer", "Name", c.Name); err != nil {
		bad = append(bad, err)
	}
	if err := validateName("consumer", "Domain", c.Domain); err != nil {
		bad = append(bad, err)
	}
	if c.Handle == nil {
		refuse("Handle", "not set", "a function")
	}
	number(&c.Concurrency, 10, 1, 1000, "Concurrency", refuse)
	number(&c.Visibility, 30*time.Second, time.Second, maxVisibility, "Visibility", refuse)
	if c.Visibility%time.Second != 0 {
		refuse("Visibility", c.Visibility, "whole seconds")
	}
	if c.Visibility < 2*config.PollWait {
		refuse("Visibility", c.Visibility, fmt.Sprintf("at least twice Config.PollWait, %v, since a message may have been hidden for as long when it arrives", config.PollWait))
	}
	number(&c.RememberDays, 15, 1, semantic.MaxTTLDays, "RememberDays", refuse)
	number(&c.TakeOverPendingAfter, 2*c.Visibility, c.Visibility+1, semantic.MaxTTL, "TakeOverPendingAfter", refuse)
	if c.RetryDelay == nil {
		c.RetryDelay = defaultRetryDelay
	}
	return c, errors.Join(bad...)
}

func defaultRetryDelay(receives int, _ error) time.Duration {
	d := min(time.Second<<min(max(receives-1, 0), 10), time.Minute)
	return d/2 + rand.N(d/2+1)
}

// retryAfterError carries a delay.
type retryAfterError struct {
	error
	delay time.Duration
}

func (e *retryAfterError) Unwrap() error { return e.error }

// RetryAfter marks a handler's error with the delay before its record is handled again,
// 0 for at once. Delays are whole seconds, rounded up, and end with SQS's 12 h from the
// receive. A nil error stays nil.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(delay, 0)}
}

// delay is how long the record waits that failed with err.
func (c Consumer) delay(receives int, err error) time.Duration {
	var own *retryAfterError
	if errors.As(err, &own) {
		return own.delay
	}
	return max(c.RetryDelay(receives, err), 0)
}

// Delivery is what a handler may want to know beyond its record.
type Delivery struct {
	// Attempt is this attempt in the idempotency log. Where TakenOver is set, an
	// earlier one did not end: find out first whether its effect happened.
	Attempt semantic.IdempotencyRecord
	// MessageID is SQS's.
	MessageID string
	// Receives is how often the message was received, this time included; 0 if
	// the queue did not say.
	Receives int
}

type deliveryKey struct{}

// DeliveryFromContext returns the delivery that a handler's context belongs to.
func DeliveryFromContext(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(Delivery)
	return d, ok
}

// logKey is the record's key in the idempotency log, readable where it is short enough.
func logKey(r semantic.FanoutRecord) string {
	key := fmt.Sprintf("%d:%s:%s", len(r.RecordID), r.RecordID, r.Version)
	if len(key) > semantic.MaxKeyBytes {
		return digest("coord.log_key.v1", r.RecordID, r.Version)
	}
	return key
}
