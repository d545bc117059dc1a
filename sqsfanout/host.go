package sqsfanout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
)

// Host runs consumers: for each queue one loop that receives no more messages than it
// has free workers for, and one worker for each message group in hand, so that groups
// run in parallel and a group's records in their order.
//
// A message is kept hidden from other replicas from its receipt on, by extending its
// visibility every third of it. It is deleted when its handler has returned nil, or
// when the idempotency log knows that it was handled before. When a handler fails, only
// its group waits: the group's other messages in hand are released at once, and the
// failed one after its delay.
//
// With no consumer a host needs no queue and does nothing. Safe for concurrent use.
type Host struct {
	config    Config
	consumers []Consumer
	log       semantic.IdempotencyLog
	signals   *observability.Signals
	measures  map[string]consumerMeasures // by consumer
	health    *health.Part

	mu  sync.Mutex
	run *run // nil when not started
}

// NewHost returns a host of consumers, whose names and domains must be distinct; it
// does no I/O. log stands in front of every handler and may be nil only without
// consumers. signals may be nil.
func NewHost(config Config, consumers []Consumer, log semantic.IdempotencyLog, signals *observability.Signals) (*Host, error) {
	config, err := config.Settled()
	bad := []error{err}
	names, domains := map[string]bool{}, map[string]bool{}
	h := &Host{config: config, log: log, signals: signals}
	for _, c := range consumers {
		c, err := c.settled(config)
		bad = append(bad, err)
		if names[c.Name] || domains[c.Domain] {
			bad = append(bad, fmt.Errorf("consumer %q of domain %q: want distinct names and domains", c.Name, c.Domain))
		}
		names[c.Name], domains[c.Domain] = true, true
		h.consumers = append(h.consumers, c)
	}
	if log == nil && len(consumers) > 0 {
		bad = append(bad, errors.New("consumers need an idempotency log: none was given"))
	}
	h.measures, err = newConsumerMeasures(config.Telemetry, h.consumers)
	if err := errors.Join(append(bad, err)...); err != nil {
		return nil, err
	}
	if len(consumers) > 0 {
		h.health = config.Health.Register("sqs_consumer", h.check)
	}
	return h, nil
}

// Start checks the consumers' queues, one round trip for each, and begins to receive in
// the background. It fails with the name of the setting when a consumer has no queue,
// and with a [*QueueError] for each attribute of a queue that does not fit.
func (h *Host) Start(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		return errors.New("consumer host is already started")
	}
	if len(h.consumers) == 0 {
		return nil
	}
	byQueue := map[string][]Consumer{}
	for _, c := range h.consumers {
		url, err := h.config.queue(c.Domain)
		if err != nil {
			return fmt.Errorf("consumer %q: %w", c.Name, err)
		}
		byQueue[url] = append(byQueue[url], c)
	}
	api, err := h.config.open(ctx)
	if err != nil {
		return err
	}
	var bad []error
	infos := map[string]queueInfo{}
	for url, consumers := range byQueue {
		info, err := verify(ctx, h.config, api, url, true)
		infos[url] = info
		bad = append(bad, err)
		for _, c := range consumers {
			if err == nil {
				bad = append(bad, checkRetention(url, info, c.Name, c.RememberDays))
			}
		}
	}
	if err := errors.Join(bad...); err != nil {
		return err
	}
	h.run = newRun(h, api, byQueue, infos)
	h.health.Started()
	return nil
}

// Stop ends the reception: no handler starts any more, running ones get a cancelled
// context and the rest of ctx's time to return, and every message that is not handled
// becomes visible to other replicas at once. A receive under way is waited for, at most
// Config.PollWait; it is cut short only when ctx is about to end, and then asked again
// for what it may have hidden.
//
// If ctx ends first, Stop returns its error and names the handlers that still run; their
// messages stay hidden while they do, and a further Stop waits for them. Stopping a host
// that was never started, or twice, is fine.
func (h *Host) Stop(ctx context.Context) error {
	h.mu.Lock()
	r := h.run
	h.mu.Unlock()
	if r == nil {
		return nil
	}
	h.health.Stopped()
	if err := r.stop(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == r {
		h.run = nil
	}
	return nil
}

// run is one start of a host.
type run struct {
	*Host
	api  API
	apis map[string]API // by queue, measured

	stopping  chan struct{}   // closed by the first stop
	handlers  context.Context // of the handlers; ends with the first stop
	cancel    context.CancelCauseFunc
	polls     context.Context // of receives; ends when a stop runs out of time
	interrupt context.CancelFunc
	once      sync.Once
	work      sync.WaitGroup // loops, workers
	done      chan struct{}  // closed when all of them have returned

	mu      sync.Mutex
	running map[string]int // handlers that run, by what to call them
}

func newRun(h *Host, api API, byQueue map[string][]Consumer, infos map[string]queueInfo) *run {
	r := &run{Host: h, api: api, stopping: make(chan struct{}), done: make(chan struct{}), running: map[string]int{}}
	r.handlers, r.cancel = context.WithCancelCause(context.Background())
	r.polls, r.interrupt = context.WithCancel(context.Background())
	lines := make([]*line, 0, len(byQueue))
	r.apis = map[string]API{}
	for url, consumers := range byQueue {
		l := newLine(r, url, infos[url], consumers)
		r.apis[url] = l.api
		lines = append(lines, l)
	}
	for _, l := range lines {
		r.work.Go(l.poll)
		r.work.Go(l.releaseAtStop)
	}
	go func() { // ends with the work, which stop waits for
		r.work.Wait()
		r.interrupt()
		close(r.done)
	}()
	return r
}

func (r *run) isStopping() bool {
	select {
	case <-r.stopping:
		return true
	default:
		return false
	}
}

// lastMoment is what a stop keeps of its time to cut a receive short and release what
// that had hidden.
const lastMoment = 3 * time.Second

func (r *run) stop(ctx context.Context) error {
	r.once.Do(func() {
		close(r.stopping)
		r.cancel(ErrStopping)
	})
	if deadline, ok := ctx.Deadline(); ok {
		last := time.AfterFunc(time.Until(deadline)-lastMoment, r.interrupt)
		defer last.Stop()
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	r.interrupt()
	select {
	case <-r.done:
		return nil
	default:
	}
	return fmt.Errorf("consumer host did not stop in time, still running: %v: %w", r.names(), ended(ctx))
}

func (r *run) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name := range r.running {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// track notes that the handler called name runs, until the returned function is called.
func (r *run) track(name string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[name]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.running[name]--; r.running[name] == 0 {
			delete(r.running, name)
		}
	}
}
