package conn

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// runners are the goroutines that make the requests which may outlive their callers.
// They are kept for the next request, since a new goroutine has to grow its stack anew
// for the client library's calls. There are never more than requests were in flight.
type runners struct {
	mu     sync.Mutex
	idle   []*runner
	closed bool
	all    sync.WaitGroup
}

// runner makes one request at a time.
type runner struct {
	next chan *request
	done chan struct{} // one for each request whose caller is still there
}

// request is what a runner is asked to do, and what came of it.
type request struct {
	ctx     context.Context
	client  redis.UniversalClient
	args    []any
	settled func()

	left  atomic.Bool // by its caller, or answered: whoever is first
	reply any
	err   error
}

// take returns an idle runner, or a new one.
func (rs *runners) take() *runner {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if n := len(rs.idle); n > 0 {
		r := rs.idle[n-1]
		rs.idle = rs.idle[:n-1]
		return r
	}
	r := &runner{next: make(chan *request, 1), done: make(chan struct{}, 1)}
	rs.all.Go(func() { rs.run(r) })
	return r
}

func (rs *runners) run(r *runner) {
	for q := range r.next {
		q.reply, q.err = process(q.ctx, q.client, q.args)
		q.settled()
		if q.left.CompareAndSwap(false, true) {
			r.done <- struct{}{} // its caller gives the runner back
		} else {
			rs.giveBack(r)
		}
	}
}

// do makes the request and waits for it, or for ctx: then answered is false, and the
// request goes on without its caller.
func (rs *runners) do(ctx context.Context, q *request) (answered bool) {
	r := rs.take()
	r.next <- q
	select {
	case <-r.done:
	case <-ctx.Done():
		if q.left.CompareAndSwap(false, true) {
			return false
		}
		<-r.done
	}
	rs.giveBack(r)
	return true
}

func (rs *runners) giveBack(r *runner) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		close(r.next)
		return
	}
	rs.idle = append(rs.idle, r)
}

// close ends the runners, once no request is in flight any more, and waits for them.
func (rs *runners) close() {
	rs.mu.Lock()
	rs.closed = true
	for _, r := range rs.idle {
		close(r.next)
	}
	rs.idle = nil
	rs.mu.Unlock()
	rs.all.Wait()
}
