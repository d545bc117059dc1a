package sqsfanout

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
)

// fanout is one Enqueue. The goroutine of the caller reads the scan, forms batches and
// accounts for them; each batch in flight has a goroutine of its own.
type fanout struct {
	ctx    context.Context
	p      *Producer
	sender sender
	domain string
	origin observability.Origin // what the messages carry; nil for nothing

	maxBytes     int // of one message
	pending      []*entry
	pendingBytes int
	busy         map[string]bool // groups with an entry in flight
	flying       int
	landed       chan landing
	report       semantic.FanoutReport
}

// entry is one record on its way. It belongs to one goroutine at a time.
type entry struct {
	organizationID, recordID string
	message                  types.SendMessageBatchRequestEntry
	size                     int

	uncertain bool // a send was not answered: it may be queued already
	queued    bool
	code      string // why not
	err       error
}

func (e *entry) group() string { return *e.message.MessageGroupId }

// landing is a batch all of whose entries have an outcome.
type landing struct {
	entries []*entry
	calls   int64
}

func newFanout(ctx context.Context, p *Producer, queue verified, queueURL, domain string) *fanout {
	f := &fanout{
		ctx: ctx, p: p, domain: domain, maxBytes: queue.maxBytes,
		sender: sender{config: p.config, api: queue.api, queueURL: queueURL},
		busy:   map[string]bool{}, landed: make(chan landing, p.config.Concurrency),
	}
	if p.measure.carries {
		f.origin = observability.OriginOf(ctx)
	}
	return f
}

// run reads records to their end and waits for every batch. A panic of the scan passes
// through it once what is in flight has ended.
func (f *fanout) run(records semantic.Records) error {
	cancelled := false
	ctx, cancel := context.WithCancel(f.ctx)
	f.ctx = ctx
	finished := false
	defer func() {
		if !finished { // the scan panicked
			cancel()
			for f.flying > 0 {
				f.land()
			}
		}
		cancel()
	}()

	var err error
	for r, scanErr := range records {
		if scanErr != nil {
			if !semantic.IsSkipped(scanErr) {
				err = scanErr
				break
			}
			f.report.Scanned++
			f.report.Skipped++
			continue
		}
		f.report.Scanned++
		if f.add(r); f.ctx.Err() != nil {
			cancelled = true
			break
		}
	}
	for len(f.pending)+f.flying > 0 {
		if f.ctx.Err() != nil {
			cancelled = true
			f.cancelPending()
		}
		f.dispatch(true)
		if f.flying > 0 {
			f.land()
		}
	}
	finished = true
	if err == nil && cancelled {
		err = ended(f.ctx)
	}
	return err
}

// add takes one record in, and waits while as many are pending as may be.
func (f *fanout) add(r semantic.FanoutRecord) {
	message, size, err := encode(f.domain, r, f.maxBytes)
	if err == nil {
		size = carry(f.origin, message.MessageAttributes, size, f.maxBytes)
	}
	e := &entry{organizationID: r.OrganizationID, recordID: r.RecordID, message: message, size: size}
	if err != nil {
		e.code, e.err = CodeInvalid, err
		f.account(e)
		return
	}
	f.pending = append(f.pending, e)
	f.pendingBytes += size
	f.dispatch(false)
	for f.full() && f.ctx.Err() == nil {
		f.dispatch(true)
		if f.full() && f.flying > 0 { // nothing flies if ctx ended just now
			f.land()
		}
	}
}

// full tells whether no more may be read from the scan.
func (f *fanout) full() bool {
	n := f.p.config.Concurrency
	return len(f.pending) >= n*maxBatch || f.pendingBytes >= n*maxBatchBytes
}

// dispatch starts full batches while there is a free place, and with partial also
// others.
func (f *fanout) dispatch(partial bool) {
	for f.flying < f.p.config.Concurrency && f.ctx.Err() == nil {
		batch, full := f.pick()
		if len(batch) == 0 || (!full && !partial) {
			return
		}
		for _, e := range batch {
			f.busy[e.group()] = true
			f.pendingBytes -= e.size
			f.pending = slices.DeleteFunc(f.pending, func(x *entry) bool { return x == e })
		}
		f.flying++
		go func() { f.landed <- landing{batch, f.sender.send(f.ctx, batch)} }()
	}
}

// pick chooses the next batch: pending entries in their order, at most one of a group
// and none of a group that has one in flight. full tells that no more would fit.
func (f *fanout) pick() (batch []*entry, full bool) {
	held := map[string]bool{}
	bytes := 0
	for _, e := range f.pending {
		g := e.group()
		if f.busy[g] || held[g] {
			continue
		}
		held[g] = true // also what does not fit: its successors must not overtake it
		if bytes+e.size > maxBatchBytes {
			full = true
			continue
		}
		bytes += e.size
		if batch = append(batch, e); len(batch) == maxBatch {
			return batch, true
		}
	}
	return batch, full
}

// land waits for one batch and accounts for its entries.
func (f *fanout) land() {
	l := <-f.landed
	f.flying--
	f.report.Calls += l.calls
	for _, e := range l.entries {
		delete(f.busy, e.group())
		f.account(e)
	}
}

// cancelPending gives what was never sent its outcome.
func (f *fanout) cancelPending() {
	for _, e := range f.pending {
		e.code = CodeCancelled
		e.err = &semantic.OutcomeError{Operation: "fanout.enqueue", Key: e.recordID, Outcome: semantic.OutcomeUnavailable, Cause: ended(f.ctx)}
		f.account(e)
	}
	f.pending, f.pendingBytes = nil, 0
}

// account enters one outcome into the report and signals a failure.
func (f *fanout) account(e *entry) {
	if e.queued {
		f.report.Enqueued++
		return
	}
	f.report.Failed++
	if len(f.report.Failures) < semantic.MaxReportedFailures {
		f.report.Failures = append(f.report.Failures, semantic.FanoutFailure{
			OrganizationID: e.organizationID, RecordID: e.recordID, Code: e.code, Err: e.err,
		})
	}
	f.p.signals.CronFanoutEnqueueFailed(f.domain, e.organizationID, e.recordID, e.code, e.err)
}
