package redismodule

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
)

const (
	// waits tells the acquire's script that the caller waits, if it is contended.
	waits       = "w"
	freedSuffix = ":freed"
	// fenceRetention is how long the last fence of a key outlives its lock. After it
	// the next fence comes from the server's clock, which is further by then.
	fenceRetention = 24 * time.Hour
	// releaseBudget bounds a release, whose context may have ended.
	releaseBudget = time.Second
)

// DistributedLockService is the [semantic.DistributedLock] on Redis. An acquire and a
// release cost one round trip each. Safe for concurrent use.
type DistributedLockService struct {
	core    *core
	room    *waitRoom
	acquire *conn.Script
	free    *conn.Script
	tail    string // of every lock's value

	// compensations are releases of tries that may arrive late.
	compensations sync.WaitGroup
	// late has the locks that were acquired with a second try, by their tokens, with their
	// ttls: the first one may arrive after the release.
	late   sync.Map
	stop   context.Context
	cancel context.CancelFunc
}

var _ semantic.DistributedLock = (*DistributedLockService)(nil)

func newDistributedLockService(c *core, listen listenFunc) *DistributedLockService {
	l := &DistributedLockService{
		core: c, room: newWaitRoom(listen),
		acquire: script("lock_acquire"), free: script("lock_release"), tail: " " + c.config.InstanceID,
	}
	l.stop, l.cancel = context.WithCancel(context.Background())
	return l
}

// close ends what the service does in the background.
func (l *DistributedLockService) close() {
	l.cancel()
	l.compensations.Wait()
}

// acquisition is one Acquire call, with what its script takes.
type acquisition struct {
	key     string
	ttl     time.Duration
	options semantic.LockOptions

	keys               [2]string
	ttlMS, retentionMS int64
	token              string
	head               string // of the lock's value
	compensated        bool   // its token is being released, so that it can acquire nothing more
}

func (l *DistributedLockService) newAcquisition(key string, ttl time.Duration, options semantic.LockOptions) *acquisition {
	a := &acquisition{
		key: key, ttl: ttl, options: options, token: newToken(),
		ttlMS: semantic.Milliseconds(ttl),
	}
	a.keys[0], a.keys[1] = l.core.keys.pair(kindLock, key, ":fence")
	a.head = strconv.FormatInt(semantic.Milliseconds(options.MinHold), 10) + " " + a.token + " "
	if !options.WithoutFence {
		a.retentionMS = semantic.Milliseconds(ttl + fenceRetention)
	}
	return a
}

// Acquire implements [semantic.DistributedLock].
func (l *DistributedLockService) Acquire(ctx context.Context, key string, ttl time.Duration, opts ...semantic.LockOption) (claim semantic.LockClaim, err error) {
	const op = "lock.acquire"
	_, call := l.core.measure.lockAcquire.Begin(ctx, key)
	defer func() { call.End(lockOutcome(claim, err), err) }()
	refused := semantic.LockClaim{Reason: semantic.ReasonUnavailable}
	if err := semantic.ValidateName(op, "key", key); err != nil {
		return refused, err
	}
	if err := semantic.ValidateDuration(op, "ttl", ttl); err != nil {
		return refused, err
	}
	options, err := semantic.ResolveLockOptions(op, ttl, opts...)
	if err != nil {
		return refused, err
	}
	a := l.newAcquisition(key, ttl, options)
	if options.Wait > 0 {
		call.Waits = true
		claim, err = l.wait(ctx, a)
	} else {
		claim, err = l.try(ctx, a)
	}
	if claim.Reason == semantic.ReasonUnavailable && !errors.Is(err, context.Canceled) && !errors.Is(err, semantic.ErrClosed) {
		l.core.signals.LockUnavailable(key, outcomeOf(err), err)
	}
	return claim, err
}

// try asks the server once, and again with the same token while the outcome is
// unknown, never longer than the lock itself would live.
func (l *DistributedLockService) try(ctx context.Context, a *acquisition) (semantic.LockClaim, error) {
	op := conn.Op{Name: "lock.acquire", Key: a.key, Small: true}
	sent := time.Now()
	uncertain := false
	reply, err := resolve(ctx, sent.Add(a.ttl), func(ctx context.Context) (int64, error) {
		args := []any{&a.ttlMS, &a.head, &a.retentionMS, &l.tail, waits}
		if a.options.Wait <= 0 {
			args = args[:4]
		}
		reply, err := l.core.command.Run(ctx, op, l.acquire, a.keys[:], args...)
		if err != nil {
			uncertain = uncertain || errors.Is(err, semantic.ErrUnknown)
			return 0, err
		}
		return integer(op, reply)
	})
	if err == nil && reply > 0 {
		claim := semantic.LockClaim{Acquired: true, Token: a.token, ValidUntil: semantic.SafeUntil(sent, a.ttl)}
		if !a.options.WithoutFence {
			claim.Fence = semantic.Fence(reply)
		}
		if uncertain {
			l.late.Store(a.token, a.ttl)
			time.AfterFunc(a.ttl, func() { l.late.Delete(a.token) })
		}
		return claim, nil
	}
	if uncertain {
		l.compensate(a.key, a.token, a.ttl)
		a.compensated = true
	}
	if err != nil {
		return semantic.LockClaim{Reason: semantic.ReasonUnavailable}, err
	}
	return semantic.LockClaim{
		Reason:     semantic.ReasonContended,
		RetryAfter: time.Duration(-1-reply) * time.Millisecond,
	}, nil
}

// compensate frees, in the background, what a try of unknown outcome may have taken
// or may still take when it arrives late. What it cannot free, the TTL does.
func (l *DistributedLockService) compensate(key, token string, ttl time.Duration) {
	if l.stop.Err() != nil {
		return
	}
	r := l.newRelease(key, token)
	l.compensations.Go(func() {
		for try := range 5 {
			ctx, cancel := context.WithTimeout(l.stop, releaseBudget)
			freed, err := l.send(ctx, r)
			cancel()
			if err == nil && freed || !pause(l.stop, min(ttl, 20*time.Millisecond<<(2*try))) {
				return
			}
		}
	})
}

// Release implements [semantic.DistributedLock].
func (l *DistributedLockService) Release(ctx context.Context, key, token string) {
	if semantic.ValidateName("lock.release", "key", key) != nil || token == "" {
		return // nothing that Acquire can have given out
	}
	_, call := l.core.measure.lockRelease.Begin(ctx, key)
	r, until := l.newRelease(key, token), time.Now().Add(releaseBudget)
	freed, err := resolve(budget{ctx, until}, until, func(ctx context.Context) (bool, error) {
		return l.send(ctx, r)
	})
	call.End(answerOr(err, freed, "released", "gone"), err)
	if err != nil {
		l.core.signals.LockReleaseFailed(key, outcomeOf(err), err)
	}
	if ttl, found := l.late.LoadAndDelete(token); found {
		l.compensate(key, token, ttl.(time.Duration))
	}
}

// budget is a context that has the values of another but not its end: it cannot be
// cancelled and only bounds the network by its deadline, which costs neither a timer
// nor a goroutine.
type budget struct {
	context.Context
	until time.Time
}

func (b budget) Deadline() (time.Time, bool) { return b.until, true }
func (b budget) Done() <-chan struct{}       { return nil }

func (b budget) Err() error {
	if time.Now().After(b.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// release is what its script takes.
type release struct {
	key            string
	keys           [1]string
	channel, token string
}

func (l *DistributedLockService) newRelease(key, token string) *release {
	r := &release{key: key, token: token}
	r.keys[0], r.channel = l.core.keys.pair(kindLock, key, freedSuffix)
	return r
}

// send sends one release and tells whether its token held the lock.
func (l *DistributedLockService) send(ctx context.Context, r *release) (bool, error) {
	op := conn.Op{Name: "lock.release", Key: r.key, Small: true}
	reply, err := l.core.command.Run(ctx, op, l.free, r.keys[:], &r.channel, &r.token)
	if err != nil {
		return false, err
	}
	n, err := integer(op, reply)
	return n > 0, err
}

// freedChannel is where the release of key is announced.
func (l *DistributedLockService) freedChannel(key string) string {
	return l.core.keys.key(kindLock, key, freedSuffix)
}

// WithLock implements [semantic.DistributedLock].
func (l *DistributedLockService) WithLock(ctx context.Context, key string, ttl time.Duration, fn func(context.Context) error, opts ...semantic.LockOption) (ran bool, err error) {
	ctx, call := l.core.measure.lockWith.Begin(ctx, key)
	outcome := "failed" // of a panic
	defer func() { call.End(outcome, err) }()
	lost := func() {
		l.core.signals.LockLost(key)
		l.core.measure.lockLost.Add(ctx, 1, "")
	}
	ran, err = semantic.RunWithLock(ctx, l.core.clock, l, key, ttl, timed(l.core.measure.lockHold, fn), lost, opts...)
	outcome = withOutcome(ran, err, semantic.ErrLockLost, "contended")
	return ran, err
}

// integer decodes a reply of one integer, which may come as text: a script gives long
// ones faster so.
func integer(op conn.Op, reply any) (int64, error) {
	switch n := reply.(type) {
	case int64:
		return n, nil
	case string:
		if n, err := strconv.ParseInt(n, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, malformed(op, reply)
}

// stillContended is the error of a wait that its context ended.
func stillContended(key string, err error) error {
	return fmt.Errorf("lock.acquire %q: still contended: %w", key, err)
}
