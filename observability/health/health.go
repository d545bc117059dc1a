// Package health tells whether a service can do its work: for each backend that the
// service uses, and for each of its subscriptions.
//
// A [Health] is made by the service and given to the configuration of what it watches:
// coordfx.Config, or the Config of a package that is used without fx. Only what is built
// registers itself, so that a backend that nothing injects is never asked.
package health

import (
	"context"
	"sync"
	"time"
)

// Budget is the longest that one [Health.Check] takes, whatever the backends do.
const Budget = time.Second

// Health collects the parts of one service. The zero value is not usable; see [New].
// Safe for concurrent use. A nil pointer watches nothing.
type Health struct {
	mu       sync.Mutex
	began    bool
	stopping bool
	parts    []*Part
}

// New returns a Health without parts, which is not ready.
func New() *Health { return &Health{} }

// Check is how one part finds out whether it works. It must return once ctx has ended,
// and changes nothing.
type Check func(ctx context.Context) Result

// Result is what a [Check] found. The zero value says that all is well.
type Result struct {
	// Err is why the part cannot do its work; nil if it can.
	Err error
	// Cause is Err in one word, which holds no secret: unavailable, unconfirmed, …
	Cause string
	// Pool is of a part with a connection pool.
	Pool *Pool
	// Subscriptions are of a part that has them.
	Subscriptions []Subscription
}

// Register adds a part that is not started yet. What registers it calls Started and
// Closed. A part of the same name that was closed makes room for it.
func (h *Health) Register(name string, check Check) *Part {
	if h == nil {
		return nil
	}
	p := &Part{name: name, check: check, state: NotStarted}
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := make([]*Part, 0, len(h.parts)+1)
	for _, other := range h.parts {
		if other.name != name || other.now() != Closed {
			kept = append(kept, other)
		}
	}
	h.parts = append(kept, p)
	return p
}

// Began says that the service has started, for one that uses no backend at all: it is
// ready then, and without it is not.
func (h *Health) Began() { h.set(true, false) }

// Stopping says that the service is about to stop: it is not ready from now on. Call it
// first of all on a signal, where load balancers need time to look away.
func (h *Health) Stopping() { h.set(false, true) }

func (h *Health) set(began, stopping bool) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.began, h.stopping = began, stopping
	}
}

// Check asks every part at once and returns when all have answered, or when ctx or the
// [Budget] has ended: who has not answered by then is failing, with the cause timeout.
// Calls at the same time share the questions: a part is never asked twice at once.
func (h *Health) Check(ctx context.Context) Report {
	if h == nil {
		return Report{State: Starting}
	}
	h.mu.Lock()
	began, stopping := h.began, h.stopping
	parts := append([]*Part(nil), h.parts...)
	h.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, Budget)
	defer cancel()
	r := Report{Parts: make([]Finding, len(parts))}
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { r.Parts[i] = p.look(ctx) })
	}
	all.Wait()
	r.State = OK
	for _, f := range r.Parts {
		switch {
		case f.State == NotStarted && r.State == OK:
			r.State = Starting
		case f.State == Failing, f.State == Closed:
			r.State = Failing
		}
	}
	switch {
	case stopping:
		r.State = Stopping
	case !began && len(parts) == 0:
		r.State = Starting
	}
	return r
}
