package sqsfanout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
)

// Producer is [semantic.Fanout] over SQS FIFO queues. It sends up to 10 records and
// 1 MiB in a request, several requests at once, and keeps at most one message of a
// group in flight, so that within a group nothing is overtaken even if the queue
// refuses single records. A group's records therefore cost a request and its round trip
// each; records of different groups travel together.
//
// What it holds in memory is bounded by Config.Concurrency, not by the number of
// records: at most 20 records for each request in flight and about 2 MiB, or one record.
//
// Safe for concurrent use.
type Producer struct {
	config  Config
	signals *observability.Signals
	measure producerMeasures
	health  *health.Part

	mu     sync.Mutex
	api    API
	queues map[string]verified
	closed bool
}

// verified is a queue that fits.
type verified struct {
	queueInfo
	api API // which measures the queue's requests
}

var _ semantic.Fanout = (*Producer)(nil)

// NewProducer returns a producer of a settled or unsettled config; it does no I/O.
// signals may be nil.
func NewProducer(config Config, signals *observability.Signals) (*Producer, error) {
	config, err := config.Settled()
	if err != nil {
		return nil, err
	}
	measure, err := newProducerMeasures(config.Telemetry)
	if err != nil {
		return nil, err
	}
	p := &Producer{config: config, signals: signals, measure: measure, queues: map[string]verified{}}
	p.health = config.Health.Register("sqs_producer", p.check)
	return p, nil
}

// Start makes the client and checks every configured queue, so that what is wrong with
// them is known before the first tick. It fails with the name of the setting when there
// is no queue at all, and with a [*QueueError] for each attribute that does not fit.
// One round trip for each queue. Without Start, a queue is checked at its first use.
func (p *Producer) Start(ctx context.Context) error {
	queues := map[string]bool{}
	if p.config.QueueURL != "" {
		queues[p.config.QueueURL] = true
	}
	for _, own := range p.config.Queues {
		queues[own] = true
	}
	if len(queues) == 0 {
		return errNoQueue
	}
	var bad []error
	for url := range queues {
		if _, err := p.open(ctx, url); err != nil {
			bad = append(bad, err)
		}
	}
	if err := errors.Join(bad...); err != nil {
		return err
	}
	p.health.Started()
	return nil
}

// Close makes every later Enqueue return [semantic.ErrClosed]. Those under way go on
// until their context ends.
func (p *Producer) Close() {
	p.health.Closed()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// open returns the client and what is known of the queue.
func (p *Producer) open(ctx context.Context, queueURL string) (verified, error) {
	p.mu.Lock()
	api, closed := p.api, p.closed
	queue, known := p.queues[queueURL]
	p.mu.Unlock()
	switch {
	case closed:
		return queue, semantic.ErrClosed
	case known:
		return queue, nil
	}
	var err error
	if api == nil {
		if api, err = p.config.open(ctx); err != nil {
			return queue, err
		}
	}
	queue.api = measured(api, p.config.Telemetry, queueURL)
	if queue.queueInfo, err = verify(ctx, p.config, queue.api, queueURL, false); err != nil {
		return queue, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.api == nil { // the first of several wins
		p.api = api
	}
	p.queues[queueURL] = queue
	return queue, nil
}

// Enqueue sends every record to the domain's queue; see [semantic.Fanout]. Beyond the
// scan's own error it returns [semantic.ErrInvalidArgument], [semantic.ErrClosed], the
// context's error, or why the queue cannot be used, and has read no record then.
//
// The codes of failures are the queue's, or [CodeInvalid], [CodeUnavailable],
// [CodeUnknown] and [CodeCancelled]. A record whose outcome is unknown was sent again
// with the same deduplication id and may be queued; once.
func (p *Producer) Enqueue(ctx context.Context, domain string, records semantic.Records) (report semantic.FanoutReport, err error) {
	const op = "fanout.enqueue"
	ctx, call := p.measure.enqueue.Begin(ctx, domain)
	began := time.Now()
	defer func() {
		outcome, failure := enqueueOutcome(report, err)
		call.End(outcome, failure)
		p.measure.duration.Record(ctx, time.Since(began), outcome)
		p.measure.report(ctx, report)
	}()
	if err := validateName(op, "domain", domain); err != nil {
		return semantic.FanoutReport{}, err
	}
	if records == nil {
		return semantic.FanoutReport{}, &semantic.ArgumentError{Operation: op, Argument: "records", Value: "nil", Allowed: "a stream"}
	}
	queueURL, err := p.config.queue(domain)
	if err != nil {
		return semantic.FanoutReport{}, err
	}
	queue, err := p.open(ctx, queueURL)
	if err != nil {
		return semantic.FanoutReport{}, err
	}
	f := newFanout(ctx, p, queue, queueURL, domain)
	err = f.run(records)
	return f.report, err
}
