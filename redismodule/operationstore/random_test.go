package operationstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// ledger is what an outside observer knows of one operation, by the one clock that all
// callers of the test share.
type ledger struct {
	mu       sync.Mutex
	holder   operation.Token
	until    time.Time // when the holder stops relying on its lease
	attempt  int       // the highest that was told
	attempts map[operation.Token]int
	touched  int // the lowest attempt that neither completed nor abandoned, 0 for none
	refs     map[string]string
	done     string // the reference that somebody was told is recorded
}

// Callers on several replicas work on a few operations while requests, replies and
// connections are lost at random. Whatever they are told must fit together: one holder at a
// time, one result, attempts that count up, takeovers that are told, and no command that is
// called not applied has been.
func TestWhateverIsLostTheAnswersFitTogether(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	server := testkit.StartRedis(t)
	const callers, rounds, operations = 8, 60, 24
	proxy := testkit.StartProxy(t, server.Addr())
	var replicas []*Opened
	for _, term := range []time.Duration{30 * time.Millisecond, 60 * time.Millisecond, 200 * time.Millisecond} {
		replicas = append(replicas, open(t, proxy.Addr(), lease(term), retention(time.Hour), func(c *Config) {
			c.CommandDeadline = 500 * time.Millisecond
		}))
	}
	books := make([]*ledger, operations)
	for i := range books {
		books[i] = &ledger{attempts: map[operation.Token]int{}, refs: map[string]string{}}
	}
	stop := make(chan struct{})
	var faults, all sync.WaitGroup
	faults.Go(func() {
		r := rand.New(rand.NewPCG(seed, 0))
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.IntN(4000)) * time.Microsecond):
			}
			switch r.IntN(6) {
			case 0:
				proxy.DropNextRequest(nil)
			case 1:
				proxy.DropNextReply(nil)
			case 2:
				proxy.HalveNextReply(nil)
			case 3:
				proxy.Reset()
			case 4:
				server.Must("SCRIPT", "FLUSH")
			case 5:
				server.Must("CLIENT", "PAUSE", r.IntN(20), "ALL")
			}
		}
	})
	for caller := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(caller)+1))
			for n := range rounds {
				i := r.IntN(operations)
				c := &attempt{t: t, r: r, c: replicas[r.IntN(len(replicas))], id: identity(fmt.Sprint("random-", i)), book: books[i], name: fmt.Sprintf("%d-%d", caller, n)}
				c.work()
			}
		})
	}
	all.Wait()
	close(stop)
	faults.Wait()

	direct := open(t, server.Addr(), lease(time.Minute))
	finished := 0
	for i, b := range books {
		s, err := direct.ReadStatus(t.Context(), identity(fmt.Sprint("random-", i)))
		if err != nil {
			t.Fatal(err)
		}
		if (s.Outcome == operation.StatusCompleted) != (s.ResultRef != "") || b.done != "" && s.ResultRef != b.done {
			t.Errorf("operation %d is %+v, callers were told %q", i, s, b.done)
		}
		if said := b.refs[s.ResultRef]; s.ResultRef != "" && said != "known" && said != "unknown" {
			t.Errorf("operation %d: result %s is recorded, its caller was told %q", i, s.ResultRef, said)
		}
		if s.ResultRef != "" {
			finished++
		}
	}
	if finished < operations/2 {
		t.Errorf("only %d of %d operations were completed: the faults leave nothing to see", finished, operations)
	}
}

// attempt is one caller's try at one operation.
type attempt struct {
	t    *testing.T
	r    *rand.Rand
	c    *Opened
	id   operation.Identity
	book *ledger
	name string
}

func (c *attempt) work() {
	ctx := c.t.Context()
	begun, err := c.c.Begin(ctx, c.id)
	var unknown *operation.UnknownError
	for try := 0; errors.As(err, &unknown) && try < 20; try++ {
		begun, err = c.c.Begin(ctx, c.id, operation.WithToken(unknown.Token))
	}
	if err != nil || begun.Outcome != operation.BeginAcquired {
		return
	}
	lease := begun.Lease
	c.acquired(lease)
	if c.r.IntN(3) == 0 {
		if renewed, err := c.c.Renew(ctx, lease); err == nil && renewed.Outcome == operation.RenewRenewed {
			lease = renewed.Lease
			c.rely(lease)
		}
	}
	switch c.r.IntN(8) {
	case 0: // dies
	case 1, 2:
		c.release(lease)
		// Whatever it says it may have been abandoned: also lost, if the first try's reply
		// was, and the next attempt has begun before the second try.
		_, _ = c.c.Abandon(ctx, lease)
		return
	default:
		ref := "ref-" + c.name
		done, err := c.c.Complete(ctx, lease, ref)
		c.completed(lease, ref, done, err)
		if err == nil && done.Outcome == operation.CompleteCompleted {
			return
		}
	}
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	if c.book.touched == 0 || lease.Attempt < c.book.touched {
		c.book.touched = lease.Attempt
	}
}

// acquired checks that nobody else relies on the operation, and that the attempt is told
// rightly.
func (c *attempt) acquired(l operation.Lease) {
	b := c.book
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.touched != 0 && l.Attempt > b.touched && !l.Takeover {
		c.t.Errorf("%s is not told that it takes %s over", c.name, c.id.IdempotencyKey)
	}
	now := time.Now()
	if !now.Before(l.ValidUntil) {
		return // the reply came too late to rely on, others may be further
	}
	if b.holder != l.Token && now.Before(b.until) {
		c.t.Errorf("%s acquired %s while its holder relies on it for %v more", c.name, c.id.IdempotencyKey, b.until.Sub(now))
	}
	if b.done != "" {
		c.t.Errorf("%s acquired %s, which is completed", c.name, c.id.IdempotencyKey)
	}
	if l.Attempt <= b.attempt && b.attempts[l.Token] == 0 {
		c.t.Errorf("%s is attempt %d of %s, after attempt %d", c.name, l.Attempt, c.id.IdempotencyKey, b.attempt)
	}
	b.holder, b.until, b.attempt, b.attempts[l.Token] = l.Token, l.ValidUntil, max(b.attempt, l.Attempt), l.Attempt
}

func (c *attempt) rely(l operation.Lease) {
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	if c.book.holder == l.Token {
		c.book.until = l.ValidUntil
	}
}

func (c *attempt) release(l operation.Lease) {
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	if c.book.holder == l.Token {
		c.book.until = time.Time{}
	}
}

func (c *attempt) completed(l operation.Lease, ref string, r operation.CompleteResult, err error) {
	b := c.book
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refs[ref] = class(err)
	if err == nil && r.Outcome != operation.CompleteCompleted {
		b.refs[ref] = string(r.Outcome)
	}
	if err == nil && r.Outcome == operation.CompleteCompleted {
		if b.done != "" {
			c.t.Errorf("%s completed %s with %s, which has %s", c.name, l.Identity.IdempotencyKey, ref, b.done)
		}
		b.done = ref
	}
}
