package conn

import (
	"cmp"
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxLanes is how many requests or batches of them are with the server at once. Fewer
	// make larger batches; more make it rarer that a request waits for one.
	maxLanes = 16
	// maxBatch bounds how much is lost with one connection, and how long the first
	// reply of a batch waits for its last.
	maxBatch = 64
)

// lanes bound how many requests are with the server at once, and carry those that come
// while all lanes are busy: they wait, and go together with the next lane that is free,
// with one write and one read for all of them.
//
// Whoever finds a lane free may have it for a request of his own. A request that may
// outlive its caller is carried by a goroutine, which is kept for the next one, since a new
// one has to grow its stack anew for the client library's calls.
type lanes struct {
	limit    int           // of lanes; 0 for no limit
	patience time.Duration // the longest wait for a lane
	timeout  time.Duration // and for the reply, that wait included

	mu      sync.Mutex
	busy    int
	waiting []*request // oldest first, those included whose callers have left
	idle    []*carrier
	closed  bool
	all     sync.WaitGroup
}

// carrier is a goroutine that carries one batch at a time.
type carrier struct {
	next  chan struct{} // there is a batch
	batch []*request
}

// request is what a carrier is asked to do, and what came of it.
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

// enter takes a lane for a request of the caller's own, if one is free; exit must follow.
func (ls *lanes) enter() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.full() {
		return false
	}
	ls.busy++
	return true
}

// exit leaves the lane to the requests that wait.
func (ls *lanes) exit() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.waiting) == 0 {
		ls.busy--
		return
	}
	if c := ls.carrier(); ls.load(c) {
		c.next <- struct{}{}
	}
}

func (ls *lanes) full() bool { return ls.limit > 0 && ls.busy >= ls.limit }

// do has the request carried and waits for it, until ctx or the time for it ends: then
// answered is false, and a request that is on its way goes on without its caller.
func (ls *lanes) do(ctx context.Context, q *request) (answered bool, err error) {
	q.done = make(chan struct{}, 1)
	end := time.Now().Add(ls.timeout)
	ends := false // by its context
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end, ends = d, ctx.Done() != nil
	}
	waits := ls.start(q)
	var alarm <-chan time.Time
	if waits || !ends {
		first := time.Until(end)
		if waits {
			first = min(first, ls.patience)
		}
		t := time.NewTimer(first)
		defer t.Stop()
		alarm = t.C
	}
	for {
		select {
		case <-q.done:
			return true, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-alarm:
			left := time.Until(end)
			if left > 0 && !ls.waits(q) { // it has found a lane
				alarm = time.After(left)
				continue
			}
			err = cmp.Or(ctx.Err(), os.ErrDeadlineExceeded)
			if left > 0 {
				err = redis.ErrPoolTimeout
			}
		}
		break
	}
	if !q.left.CompareAndSwap(false, true) {
		<-q.done
		return true, nil
	}
	ls.forget(q)
	return false, err
}

// start has the request carried, or lets it wait.
func (ls *lanes) start(q *request) (waits bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.full() {
		q.waits = true
		ls.waiting = append(ls.waiting, q)
		return true
	}
	ls.busy++
	c := ls.carrier()
	c.batch = append(c.batch, q)
	c.next <- struct{}{}
	return false
}

func (ls *lanes) waits(q *request) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return q.waits
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

// The following are called with the mutex held.

// carrier returns one that is idle, or a new one.
func (ls *lanes) carrier() *carrier {
	if n := len(ls.idle); n > 0 {
		c := ls.idle[n-1]
		ls.idle = ls.idle[:n-1]
		return c
	}
	c := &carrier{next: make(chan struct{}, 1)}
	ls.all.Go(func() { ls.run(c) })
	return c
}

// fill gives the carrier the requests that wait, as many as go together.
func (ls *lanes) fill(c *carrier) {
	taken := 0
	for _, q := range ls.waiting {
		if len(c.batch) == maxBatch {
			break
		}
		if q.waits {
			q.waits = false
			c.batch = append(c.batch, q)
		}
		taken++
	}
	left := copy(ls.waiting, ls.waiting[taken:])
	clear(ls.waiting[left:])
	ls.waiting = ls.waiting[:left]
}

// load gives the carrier the next batch. If there is none, its lane is free, and it rests
// until it is needed, or ends, if enough others rest.
func (ls *lanes) load(c *carrier) bool {
	if ls.fill(c); len(c.batch) > 0 {
		return true
	}
	ls.busy--
	if ls.closed || len(ls.idle) >= maxLanes {
		close(c.next)
	} else {
		ls.idle = append(ls.idle, c)
	}
	return false
}

// run is a carrier's work. It takes the mutex itself, as close does.
func (ls *lanes) run(c *carrier) {
	for range c.next {
		for more := true; more; {
			carry(c.batch)
			clear(c.batch)
			ls.mu.Lock()
			c.batch = c.batch[:0]
			more = ls.load(c)
			ls.mu.Unlock()
		}
	}
}

// close ends the carriers, once no request is in flight any more, and waits for them.
func (ls *lanes) close() {
	ls.mu.Lock()
	ls.closed = true
	for _, c := range ls.idle {
		close(c.next)
	}
	ls.idle = nil
	ls.mu.Unlock()
	ls.all.Wait()
}

// carry sends the requests together, waits for all of their replies and answers them.
func carry(batch []*request) {
	batch = staying(batch)
	for again := false; len(batch) > 1; again = true {
		own := batch[0].client.(*redis.Client).Conn() // a Cluster's requests never wait for a lane
		if again {
			// This time it is connected first, which may take long, and whoever leaves
			// meanwhile is no longer in the batch.
			_ = own.Ping(batch[0].ctx).Err()
			batch = staying(batch)
		}
		p := &pack{requests: batch}
		if len(batch) > 0 {
			p.send(own)
		}
		_ = own.Close() // gives the connection back
		if !p.broken {
			for _, q := range batch {
				q.settle()
			}
			return
		}
		// Nothing was sent: one of them had been left. The others go without it.
		batch = staying(batch)
	}
	for _, q := range batch { // one, or none
		q.mark.pack = nil
		q.reply, q.err = process(q.ctx, q.client, q.args)
		q.settle()
	}
}

// staying returns the requests that may still be sent, and settles the others.
func staying(batch []*request) []*request {
	stay := batch[:0]
	for _, q := range batch {
		// Who left while a batch was about to be written could not say so to the mark.
		if q.mark.gone() || q.left.Load() {
			q.mark.abandon()
			q.err = cmp.Or(q.mark.ctx.Err(), context.Canceled)
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

func (p *pack) send(own *redis.Conn) {
	pipeline := own.Pipeline()
	commands := make([]packedCmd, len(p.requests))
	for i, q := range p.requests {
		q.mark.pack = p
		commands[i].onceCmd = command(q.ctx, q.args)
		_ = pipeline.Process(q.ctx, &commands[i]) // queues it
	}
	_, err := pipeline.Exec(p.requests[0].ctx)
	for i, q := range p.requests {
		q.reply, q.err = commands[i].Val(), commands[i].Err()
		if q.err == nil && !commands[i].answered {
			// The library gives the commands no error when the server refuses the connection.
			q.err = cmp.Or(err, io.ErrUnexpectedEOF)
		}
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
