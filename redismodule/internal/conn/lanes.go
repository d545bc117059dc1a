package conn

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

const (
	// maxLanes is how many requests or batches of them are with the server at once. Fewer
	// make larger batches; more make it rarer that a request waits for one.
	maxLanes = 8
	// maxBatch bounds how much is lost with one connection, and how long the first
	// reply of a batch waits for its last.
	maxBatch = 64
)

// lanes carry the requests that may outlive their callers. One that finds a lane free
// goes at once, by itself. Those that come while all are busy wait, and go together with
// the next lane that is free: one write and one read for all of them.
//
// A lane is a goroutine that is kept for the next request, since a new one has to grow its
// stack anew for the client library's calls.
type lanes struct {
	limit   int // of lanes; 0 for no limit
	mu      sync.Mutex
	idle    []*lane
	started int
	waiting []*request // oldest first, those included whose callers have left
	closed  bool
	all     sync.WaitGroup
}

// lane carries one batch at a time.
type lane struct {
	next  chan *request
	batch []*request
}

// request is what a lane is asked to carry, and what came of it.
type request struct {
	ctx     context.Context // without the caller's end
	client  redis.UniversalClient
	args    []any
	mark    *sendMark
	settled func()

	waits bool        // for a lane; guarded by the lanes' mutex
	left  atomic.Bool // by its caller, or answered: whoever is first
	done  chan struct{}
	reply any
	err   error
}

// do carries the request and waits for it, or for ctx: then answered is false, and a
// request that is on its way goes on without its caller.
func (ls *lanes) do(ctx context.Context, q *request) (answered bool) {
	q.done = make(chan struct{}, 1)
	ls.start(q)
	select {
	case <-q.done:
		return true
	case <-ctx.Done():
	}
	if !q.left.CompareAndSwap(false, true) {
		<-q.done
		return true
	}
	ls.forget(q)
	return false
}

// start gives the request to an idle lane, to a new one, or to those that wait.
func (ls *lanes) start(q *request) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if n := len(ls.idle); n > 0 {
		l := ls.idle[n-1]
		ls.idle = ls.idle[:n-1]
		l.next <- q
		return
	}
	if ls.limit > 0 && ls.started >= ls.limit {
		q.waits = true
		ls.waiting = append(ls.waiting, q)
		return
	}
	l := &lane{next: make(chan *request, 1)}
	l.next <- q
	ls.started++
	ls.all.Go(func() { ls.run(l) })
}

// forget settles a request that its caller left while it waited.
func (ls *lanes) forget(q *request) {
	ls.mu.Lock()
	waited := q.waits
	q.waits = false
	ls.mu.Unlock()
	if waited {
		q.mark.abandon()
		q.settled()
	}
}

func (ls *lanes) run(l *lane) {
	for q := range l.next {
		l.batch = append(l.batch, q)
		for len(l.batch) > 0 {
			carry(l.batch)
			clear(l.batch)
			l.batch = ls.refill(l, l.batch[:0])
		}
	}
}

// refill gives the lane the requests that wait; without any it is idle from now on.
func (ls *lanes) refill(l *lane, batch []*request) []*request {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	taken := 0
	for _, q := range ls.waiting {
		if len(batch) == maxBatch {
			break
		}
		if q.waits {
			q.waits = false
			batch = append(batch, q)
		}
		taken++
	}
	left := copy(ls.waiting, ls.waiting[taken:])
	clear(ls.waiting[left:])
	ls.waiting = ls.waiting[:left]
	if len(batch) == 0 {
		if ls.closed {
			close(l.next)
		} else {
			ls.idle = append(ls.idle, l)
		}
	}
	return batch
}

// close ends the lanes, once no request is in flight any more, and waits for them.
func (ls *lanes) close() {
	ls.mu.Lock()
	ls.closed = true
	for _, l := range ls.idle {
		close(l.next)
	}
	ls.idle = nil
	ls.mu.Unlock()
	ls.all.Wait()
}

// carry sends the requests together, waits for all of their replies and answers them.
func carry(batch []*request) {
	for batch = staying(batch); len(batch) > 1; batch = staying(batch) {
		p := &pack{requests: batch}
		p.send()
		if !p.broken {
			for _, q := range batch {
				q.settle()
			}
			return
		}
		// Nothing was sent: one of them had been left. The others go without it.
	}
	for _, q := range batch {
		q.mark.pack = nil
		q.reply, q.err = process(q.ctx, q.client, q.args)
		q.settle()
	}
}

// staying returns the requests whose callers still wait, and settles the others.
func staying(batch []*request) []*request {
	stay := batch[:0]
	for _, q := range batch {
		if q.err = q.mark.ctx.Err(); q.err != nil && q.mark.abandon() {
			q.settle()
		} else {
			stay = append(stay, q)
		}
	}
	return stay
}

// settle says that the request has ended, and answers its caller if that is still there.
func (q *request) settle() {
	q.settled()
	if q.left.CompareAndSwap(false, true) {
		q.done <- struct{}{}
	}
}

// pack is a batch on its way.
type pack struct {
	requests []*request
	sealed   bool // the first byte is being written
	broken   bool // it could not be sealed, and nothing was written
}

func (p *pack) send() {
	first := p.requests[0]
	pipeline := first.client.Pipeline()
	commands := make([]packedCmd, len(p.requests))
	for i, q := range p.requests {
		q.mark.pack = p
		commands[i].onceCmd = command(q.ctx, q.args)
		_ = pipeline.Process(q.ctx, &commands[i]) // queues it
	}
	_, _ = pipeline.Exec(first.ctx)
	for i, q := range p.requests {
		q.reply, q.err = commands[i].Val(), commands[i].Err()
	}
}

// packedCmd keeps what came first, its reply or an error. When a connection ends in the
// middle of a batch, the client library gives those before the end its error as well.
type packedCmd struct {
	onceCmd
	answered bool
}

// SetErr is called with nil after a reply.
func (c *packedCmd) SetErr(err error) {
	if !c.answered {
		c.answered = err == nil
		c.onceCmd.SetErr(err)
	}
}

// seal is asked when the first of the requests is written: from then on all of them may be
// applied. If one has been left by its caller, it fails and nothing is written.
func (p *pack) seal() error {
	if p.sealed {
		return nil
	}
	for i, q := range p.requests {
		if q.mark.write() {
			continue
		}
		p.broken = true
		for _, before := range p.requests[:i] {
			before.mark.unwrite()
		}
		return context.Canceled
	}
	p.sealed = true
	return nil
}
