package testkit

import (
	"context"
	"errors"
	"sync"

	"github.com/wrkbelt/coord/semantic"
)

// Causes that the doubles give to injected failures.
var (
	errInjectedDown = errors.New("injected: backend is down")
	errInjectedLost = errors.New("injected: reply was lost")
)

// injector holds the faults that a double's backend suffers from.
type injector struct {
	mu     sync.Mutex
	counts map[Fault]int
	healed chan struct{} // closed and renewed at every heal
}

// Inject makes f happen until heal is called; FaultLoseReply happens once.
func (i *injector) Inject(f Fault) (heal func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.counts == nil {
		i.counts = map[Fault]int{}
		i.healed = make(chan struct{})
	}
	i.counts[f]++
	var once sync.Once
	return func() {
		once.Do(func() {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.counts[f] = max(0, i.counts[f]-1)
			close(i.healed)
			i.healed = make(chan struct{})
		})
	}
}

func (i *injector) has(f Fault) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.counts[f] > 0
}

// before is what a request meets on its way to the backend: the context's end, an
// outage or a silence. A request that it lets through is applied.
func (i *injector) before(ctx context.Context, operation, key string) error {
	fail := func(o semantic.Outcome, cause error) error {
		return &semantic.OutcomeError{Operation: operation, Key: key, Outcome: o, Cause: cause}
	}
	if err := ctx.Err(); err != nil {
		return fail(semantic.OutcomeUnavailable, err)
	}
	for {
		i.mu.Lock()
		down, hang, healed := i.counts[FaultDown] > 0, i.counts[FaultHang] > 0, i.healed
		i.mu.Unlock()
		if down {
			return fail(semantic.OutcomeUnavailable, errInjectedDown)
		}
		if !hang {
			return nil
		}
		select {
		case <-ctx.Done():
			return fail(semantic.OutcomeUnknown, ctx.Err())
		case <-healed:
		}
	}
}

// replyLost tells whether the reply of an applied request is lost, and whether a
// second try of the same request would get its own.
func (i *injector) replyLost() (lost, resolvable bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.counts[FaultLoseReplies] > 0 {
		return true, false
	}
	if i.counts[FaultLoseReply] > 0 {
		i.counts[FaultLoseReply]--
		return true, true
	}
	return false, false
}

// unknown is the error of an applied request whose reply was lost for good.
func unknown(operation, key string) error {
	return &semantic.OutcomeError{Operation: operation, Key: key, Outcome: semantic.OutcomeUnknown, Cause: errInjectedLost}
}
