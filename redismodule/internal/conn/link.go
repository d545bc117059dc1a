package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/semantic"
)

// Op names a call for errors: the operation and the caller's key. ReadOnly calls
// change nothing on the server, so that a failed one is never unknown.
type Op struct {
	Name     string
	Key      string
	ReadOnly bool
	// Small says that request and reply are small, so that they may share a round trip
	// with others where many come at once.
	Small bool
	// InFlight, which may be nil, is called with 1 when a request begins and with -1
	// when it has settled: with its reply, or, where the caller left before, when the
	// abandoned request has ended too. Such a request is taken as small. One without it
	// that has a connection of its own is cut off when its caller leaves.
	InFlight func(delta int)
}

// link owns one client of the library. It is inert until its first use: the client
// starts goroutines when it is built.
type link struct {
	options Options
	board   switchboard

	mu     sync.RWMutex // guards the three below
	client redis.UniversalClient
	closed bool
	calls  sync.WaitGroup // calls in flight, abandoned ones included

	lanes   lanes   // of small and counted requests
	directs directs // for small ones
	endings endings

	known sync.Map // *Script → *atomic.Int64, see run
}

// enter registers a call and returns the client.
func (l *link) enter(op Op) (redis.UniversalClient, error) {
	l.mu.RLock()
	client, closed := l.client, l.closed
	if client != nil {
		l.calls.Add(1)
	}
	l.mu.RUnlock()
	if client == nil && !closed {
		client = l.open(true)
	}
	if client == nil {
		return nil, fmt.Errorf("%s %q: %w", op.Name, op.Key, semantic.ErrClosed)
	}
	return client, nil
}

// open returns the client, built if need be, and nil after close. As a call, Close
// waits for it.
func (l *link) open(call bool) redis.UniversalClient {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if l.client == nil {
		l.board.timeout = l.options.CommandTimeout
		l.board.closing, l.board.cut = context.WithCancel(context.Background())
		l.lanes.patience, l.lanes.timeout = l.options.PoolTimeout, l.options.CommandTimeout
		if l.options.Mode != Cluster { // whose commands go to servers of their own
			l.lanes.limit = min(maxLanes, l.options.PoolSize)
			l.directs.limit = min(maxLanes, l.options.PoolSize/2)
		}
		l.client = newClient(l.options, &l.board)
	}
	if call {
		l.calls.Add(1)
	}
	return l.client
}

// Close refuses new calls, waits for those in flight until ctx ends, and closes the
// connections. It returns ctx's error if it had to cut calls off. Closing twice is fine.
func (l *link) Close(ctx context.Context) error {
	l.mu.Lock()
	client := l.client
	l.closed, l.client = true, nil
	l.mu.Unlock()
	if client == nil {
		return nil
	}
	drained := make(chan struct{})
	go func() {
		l.calls.Wait()
		close(drained)
	}()
	var cut error
	select {
	case <-drained:
	case <-ctx.Done():
		cut = fmt.Errorf("closing redis connections: calls were still in flight: %w", ctx.Err())
	}
	l.board.cut() // what still dials
	l.directs.close()
	err := client.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // a connection that was lost before
	}
	<-drained // closing the sockets ends what was left
	l.lanes.close()
	return errors.Join(cut, err)
}

// Do sends one command and returns its reply: nil, int64, string or []any. The last
// argument must be a string, []byte, int or int64, or a pointer to a string.
func (l *link) Do(ctx context.Context, op Op, args ...any) (any, error) {
	client, err := l.enter(op)
	if err != nil {
		return nil, err
	}
	reply, sent, err := l.roundTrip(ctx, op, client, args)
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, classify(ctx, op, err, sent)
	}
	return reply, nil
}

// Run calls a script by its digest, and by its source where the server does not know
// it yet: the first time, and after a restart. args must not be empty; the last one
// is as for Do.
func (l *link) Run(ctx context.Context, op Op, s *Script, keys []string, args ...any) (any, error) {
	client, err := l.enter(op)
	if err != nil {
		return nil, err
	}
	l.calls.Add(1) // for the second request, which Close waits for too
	defer l.calls.Done()
	r := &run{script: s, known: l.knownOf(s), dials: &l.board.dials}
	full := append(r.room[:0], (*verb)(r), (*body)(r), len(keys))
	for i := range keys {
		full = append(full, &keys[i])
	}
	full = append(full, args...)

	reply, sent, err := l.roundTrip(ctx, op, client, full)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && !r.whole {
		// A refusal: the script did not run, sending it whole is its first run.
		r.forgotten()
		l.calls.Add(1)
		full[len(full)-1] = args[len(args)-1]
		reply, sent, err = l.roundTrip(ctx, op, client, full)
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, classify(ctx, op, err, sent)
	}
	r.ran()
	return reply, nil
}

func (l *link) knownOf(s *Script) *atomic.Int64 {
	if v, ok := l.known.Load(s); ok {
		return v.(*atomic.Int64)
	}
	v, _ := l.known.LoadOrStore(s, new(atomic.Int64))
	return v.(*atomic.Int64)
}

// roundTrip sends args once and waits for the reply or for ctx. It ends the call that
// enter began.
func (l *link) roundTrip(ctx context.Context, op Op, client redis.UniversalClient, args []any) (reply any, sent bool, err error) {
	if err := ctx.Err(); err != nil {
		l.calls.Done()
		return nil, false, err
	}
	if op.InFlight != nil || op.Small && !l.lanes.enter() {
		return l.carried(ctx, op, client, args)
	}
	defer l.calls.Done()
	if op.Small {
		defer l.lanes.exit()
		if d, open := l.directs.take(); d != nil {
			return l.direct(ctx, d, args)
		} else if open {
			return l.openDirect(ctx, client.(*redis.Client), args)
		}
	}
	mark := markLast(ctx, args)
	if ctx.Done() != nil {
		call := l.board.begin(ctx)
		defer l.board.end(call)
		ctx = call
	} else if end, ends := ctx.Deadline(); ends {
		ctx = l.endings.of(ctx, end)
	}
	reply, err = process(ctx, client, args)
	return reply, mark.sent(), err
}

// carried is the round trip of a request that may share one with others. Its caller can
// leave it at any time. If it has been sent it is not dropped then, and so counts as in
// flight while the server may still be busy with it: with the command's timeout, at the
// latest, it settles.
func (l *link) carried(ctx context.Context, op Op, client redis.UniversalClient, args []any) (reply any, sent bool, err error) {
	mark := markLast(ctx, args)
	settled := l.calls.Done
	if op.InFlight != nil {
		op.InFlight(1)
		settled = func() {
			op.InFlight(-1)
			l.calls.Done()
		}
	}
	q := &request{ctx: context.WithoutCancel(ctx), client: client, args: args, mark: mark, settled: settled}
	if answered, err := l.lanes.do(ctx, q); !answered {
		return nil, !mark.abandon(), err
	}
	return q.reply, mark.sent(), q.err
}

// processor is a client, or one connection of it.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

func process(ctx context.Context, client processor, args []any) (reply any, err error) {
	cmd := command(ctx, args)
	err = client.Process(ctx, cmd)
	return cmd.Val(), err
}

func command(ctx context.Context, args []any) onceCmd {
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	if args[0] == "PUBLISH" {
		// A Cluster takes it on any node, and the library picks one at random each
		// time. Through one node, that of the channel's slot, order is kept.
		cmd.SetFirstKeyPos(1)
	}
	return cmd
}
