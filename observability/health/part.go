package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Part is one thing that a service needs. A nil pointer is none.
type Part struct {
	name  string
	check Check

	mu     sync.Mutex
	state  State     // NotStarted, OK (ask), or Closed
	asking *question // under way; nil for none
}

// question is one run of a part's check, for all who want to know at the time.
type question struct {
	answered chan struct{}
	cancel   context.CancelFunc
	result   Result
	took     time.Duration
}

// Started says that the part is to be asked from now on.
func (p *Part) Started() { p.become(OK) }

// Stopped says that the part is not to be asked until it is started again.
func (p *Part) Stopped() { p.become(NotStarted) }

// Closed says that the part works no more. It ends a question under way and waits for it.
func (p *Part) Closed() {
	if q := p.become(Closed); q != nil {
		q.cancel()
		<-q.answered
	}
}

func (p *Part) become(s State) *question {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != Closed {
		p.state = s
	}
	return p.asking
}

func (p *Part) now() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// look asks the part, or joins who asks already, and waits until ctx ends.
func (p *Part) look(ctx context.Context) Finding {
	f := Finding{Name: p.name}
	p.mu.Lock()
	if p.state != OK {
		f.State = p.state
		p.mu.Unlock()
		return f
	}
	q := p.asking
	if q == nil {
		q = &question{answered: make(chan struct{})}
		var own context.Context
		own, q.cancel = context.WithTimeout(context.WithoutCancel(ctx), Budget)
		p.asking = q
		go p.ask(own, q)
	}
	p.mu.Unlock()

	select {
	case <-q.answered:
	case <-ctx.Done():
		f.State, f.Cause = Failing, "timeout"
		f.Err = fmt.Errorf("%s has not answered: %w", p.name, ctx.Err())
		return f
	}
	f.State, f.Took = OK, q.took
	f.Err, f.Cause, f.Pool, f.Subscriptions = q.result.Err, q.result.Cause, q.result.Pool, q.result.Subscriptions
	if f.Err != nil {
		f.State = Failing
		if errors.Is(f.Err, context.DeadlineExceeded) {
			f.Cause = "timeout"
		}
		if p.now() == Closed {
			f.State = Closed
		}
	}
	return f
}

// ask runs the check. A panic of it is a failure of the part, not of the service.
func (p *Part) ask(ctx context.Context, q *question) {
	began := time.Now()
	defer func() {
		if v := recover(); v != nil {
			q.result = Result{Err: fmt.Errorf("the check panicked: %v", v), Cause: "failed"}
		}
		q.took = time.Since(began)
		q.cancel()
		p.mu.Lock()
		p.asking = nil
		p.mu.Unlock()
		close(q.answered)
	}()
	q.result = p.check(ctx)
	if q.result.Err != nil && q.result.Cause == "" {
		q.result.Cause = "failed"
	}
}
