package histories

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// TestMain excuses the client library's search for a server that is gone: where as many
// dials have failed as the pool has connections, it ends up to a second after the close.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

const (
	clients = 5
	keys    = 3
	ttl     = 5 * time.Minute // longer than any history: nothing expires
)

// recorder keeps a history. Times are monotonic nanoseconds since its making.
type recorder struct {
	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
}

func (r *recorder) now() int64 { return int64(time.Since(r.began)) }

// add records a call that ended now, or never where its outcome is unknown.
func (r *recorder) add(client int, call int64, in input, out output) {
	end := r.now()
	if out.unknown {
		end = math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
}

// rig is the system under test: services behind an unreliable network.
type rig struct {
	seed     uint64
	server   *testkit.RedisServer
	pair     *testkit.RedisPair
	proxy    *testkit.Proxy
	services []*redismodule.Services
	failures *releaseFailures
	recorder *recorder
}

// releaseFailures remembers which keys' releases could not be confirmed: a release of a
// lock says it in its signal only.
type releaseFailures struct {
	mu     sync.Mutex
	counts map[string]int
}

func (f *releaseFailures) of(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[key]
}

func (f *releaseFailures) Write(e zapcore.Entry, fields []zapcore.Field) error {
	encoder := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(encoder)
	}
	if encoder.Fields["event"] == string(observability.LockReleaseFailed) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.counts[fmt.Sprint(encoder.Fields["key"])]++
	}
	return nil
}
func (f *releaseFailures) Enabled(zapcore.Level) bool        { return true }
func (f *releaseFailures) With([]zapcore.Field) zapcore.Core { return f }
func (f *releaseFailures) Sync() error                       { return nil }
func (f *releaseFailures) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return c.AddCore(e, f)
}

// setup is what a history is recorded on.
type setup struct {
	replica       bool // a primary and its replica
	oneConnection bool // shared by all clients, so that what they ask goes together
}

func newRig(t *testing.T, on setup) *rig {
	t.Helper()
	r := &rig{seed: rand.Uint64(), failures: &releaseFailures{counts: map[string]int{}}, recorder: &recorder{began: time.Now()}}
	if s := os.Getenv("COORD_TEST_SEED"); s != "" {
		r.seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("seed: COORD_TEST_SEED=%d", r.seed)
	if on.replica {
		r.pair = testkit.StartRedisPair(t)
		r.server = r.pair.Primary
	} else {
		r.server = testkit.StartRedis(t)
	}
	r.proxy = testkit.StartProxy(t, r.server.Addr())
	for i := range clients {
		if on.oneConnection && i > 0 {
			r.services = append(r.services, r.services[0])
			continue
		}
		config := redismodule.Config{
			URL: r.proxy.URL(), InstanceID: fmt.Sprint("client-", i),
			CommandTimeout: 150 * time.Millisecond, DialTimeout: 150 * time.Millisecond,
		}
		if on.oneConnection {
			config.PoolSize = 1
		}
		s, err := redismodule.Open(config, observability.New(zap.New(testkit.RecordSignals(r.failures))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = s.Close(ctx)
		})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.services = append(r.services, s)
	}
	r.proxy.Unreliable(testkit.Odds{Seed: r.seed, DropRequest: 0.03, DropReply: 0.05, HalveReply: 0.02, MaxDelay: 3 * time.Millisecond})
	return r
}

// span is how long a history is recorded.
func span(t *testing.T) time.Duration {
	t.Helper()
	if s := os.Getenv("COORD_TEST_HISTORY"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("COORD_TEST_HISTORY: %v", err)
		}
		return d
	}
	return 2 * time.Second
}

// run lets every client work until the span is over, while disturb makes trouble.
func (r *rig) run(t *testing.T, work func(client int, s *redismodule.Services, dice *rand.Rand), disturb func(dice *rand.Rand)) {
	t.Helper()
	end := time.Now().Add(span(t))
	var all sync.WaitGroup
	for i, s := range r.services {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(r.seed, uint64(i)))
			for time.Now().Before(end) {
				work(i, s, dice)
			}
		})
	}
	all.Go(func() {
		dice := rand.New(rand.NewPCG(r.seed, clients))
		for time.Now().Before(end) && disturb != nil {
			wait(time.Duration(100+dice.IntN(200)) * time.Millisecond)
			disturb(dice)
		}
	})
	all.Wait()
}

func wait(d time.Duration) { <-time.After(d) }

func (r *rig) check(t *testing.T) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(model(), withForgottenTries(r.recorder.ops), 2*time.Minute)
	unknowns := 0
	for _, o := range r.recorder.ops {
		if o.Output.(output).unknown {
			unknowns++
		}
	}
	t.Logf("%d calls, %d of them unknown: %v", len(r.recorder.ops), unknowns, result)
	switch result {
	case porcupine.Illegal:
		file := fmt.Sprintf("%s/history-%d.html", os.TempDir(), r.seed)
		_ = porcupine.VisualizePath(model(), info, file)
		t.Errorf("no order of the calls explains what the clients were told; see %s", file)
	case porcupine.Unknown:
		t.Errorf("the search did not end in time: shorten COORD_TEST_HISTORY")
	}
}

// withForgottenTries adds to each call that was under way while the server lost its data
// an earlier try of it, applied or not: with the data goes the memory by which a second
// try knows the first, so that it answers for itself alone.
func withForgottenTries(ops []porcupine.Operation) []porcupine.Operation {
	all := slices.Clone(ops)
	for _, lost := range ops {
		if verb := lost.Input.(input).verb; verb != crash && verb != failover {
			continue
		}
		for _, o := range ops {
			if o.Input.(input).key != "" && !o.Output.(output).unknown && o.Call < lost.Return && o.Return > lost.Call {
				all = append(all, porcupine.Operation{ClientId: o.ClientId, Input: o.Input, Call: o.Call, Output: output{unknown: true}, Return: o.Return})
			}
		}
	}
	return all
}

// lockWork is one cycle of one client, who waits for the lock every second time.
func (r *rig) lockWork(client int, s *redismodule.Services, dice *rand.Rand) {
	key := fmt.Sprint("k", dice.IntN(keys))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var opts []semantic.LockOption
	if dice.IntN(2) == 0 {
		opts = append(opts, semantic.WithWait(time.Duration(1+dice.IntN(100))*time.Millisecond))
	}
	call := r.recorder.now()
	c, err := s.Lock.Acquire(ctx, key, ttl, opts...)
	switch {
	case errors.Is(err, semantic.ErrUnknown):
		// Taken or not, and if so freed by a compensating release or not.
		lost := fmt.Sprintf("lost-%d-%d", client, call)
		r.recorder.add(client, call, input{acquire, key, lost}, output{unknown: true})
		r.recorder.add(client, call, input{free, key, lost}, output{unknown: true})
		return
	case err != nil:
		return // provably nothing
	case !c.Acquired:
		r.recorder.add(client, call, input{acquire, key, fmt.Sprintf("refused-%d-%d", client, call)}, output{})
		return
	}
	r.recorder.add(client, call, input{acquire, key, c.Token}, output{ok: true})
	wait(time.Duration(dice.IntN(3)) * time.Millisecond)
	before := r.failures.of(key)
	call = r.recorder.now()
	s.Lock.Release(context.Background(), key, c.Token)
	r.recorder.add(client, call, input{free, key, c.Token}, output{unknown: r.failures.of(key) != before})
}

// leaseWork is one call of one client, under one of two names.
func (r *rig) leaseWork(client int, s *redismodule.Services, dice *rand.Rand) {
	key, holder := fmt.Sprint("k", dice.IntN(keys)), fmt.Sprintf("h%d-%d", client, dice.IntN(2))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	call := r.recorder.now()
	var in input
	var out output
	var err error
	switch throw := dice.IntN(10); {
	case throw < 5:
		in = input{claim, key, holder}
		out.ok, err = s.Lease.Claim(ctx, key, holder, ttl)
	case throw < 6:
		in = input{takeOver, key, holder}
		out.ok = true
		out.other, err = s.Lease.TakeOver(ctx, key, holder, ttl)
	default:
		in = input{giveUp, key, holder}
		res := s.Lease.Release(ctx, key, holder)
		out.ok, err = res.Removed, res.Err
		if !out.ok {
			out.other = res.Holder
		}
	}
	switch {
	case errors.Is(err, semantic.ErrUnknown):
		out = output{unknown: true}
	case err != nil:
		return
	}
	r.recorder.add(client, call, in, out)
	wait(time.Duration(dice.IntN(2)) * time.Millisecond)
}

func TestHistoriesOfTheLockUnderLostAndDelayedReplies(t *testing.T) {
	r := newRig(t, setup{})
	r.run(t, r.lockWork, nil)
	r.check(t)
}

func TestHistoriesOfTheLeaseUnderLostAndDelayedReplies(t *testing.T) {
	r := newRig(t, setup{})
	r.run(t, r.leaseWork, nil)
	r.check(t)
}

func TestHistoriesOfTheLockWithPausesAndCrashes(t *testing.T) {
	r := newRig(t, setup{})
	r.run(t, r.lockWork, r.pausesAndCrashes)
	r.check(t)
}

func TestHistoriesOfTheLeaseWithPausesAndCrashes(t *testing.T) {
	r := newRig(t, setup{})
	r.run(t, r.leaseWork, r.pausesAndCrashes)
	r.check(t)
}

func TestHistoriesOfTheLockOverOneConnection(t *testing.T) {
	r := newRig(t, setup{oneConnection: true})
	r.run(t, r.lockWork, r.pausesAndCrashes)
	r.check(t)
}

func TestHistoriesOfTheLeaseOverOneConnection(t *testing.T) {
	r := newRig(t, setup{oneConnection: true})
	r.run(t, r.leaseWork, r.pausesAndCrashes)
	r.check(t)
}

func TestHistoriesOfTheLockWithAFailover(t *testing.T) {
	r := newRig(t, setup{replica: true})
	r.run(t, r.lockWork, r.oneFailover())
	r.check(t)
}

func TestHistoriesOfTheLeaseWithAFailover(t *testing.T) {
	r := newRig(t, setup{replica: true})
	r.run(t, r.leaseWork, r.oneFailover())
	r.check(t)
}

func (r *rig) pausesAndCrashes(dice *rand.Rand) {
	if dice.IntN(3) > 0 {
		r.server.Pause()
		wait(time.Duration(50+dice.IntN(200)) * time.Millisecond)
		r.server.Resume()
		return
	}
	call := r.recorder.now()
	r.server.Kill()
	r.server.Restart()
	r.recorder.add(clients, call, input{verb: crash}, output{})
}

// oneFailover kills the primary once and lets the replica take its place.
func (r *rig) oneFailover() func(*rand.Rand) {
	done := false
	return func(*rand.Rand) {
		if done {
			return
		}
		done = true
		call := r.recorder.now()
		r.pair.Failover()
		r.proxy.Retarget(r.pair.Primary.Addr())
		r.recorder.add(clients, call, input{verb: failover}, output{})
	}
}

// TestARestartBetweenTwoTriesExplainsTheirAnswer: a release that was applied, forgotten
// with everything else and asked for again says that there is no holder. Without the
// loss nothing explains that.
func TestARestartBetweenTwoTriesExplainsTheirAnswer(t *testing.T) {
	op := func(from, to int64, in input, out output) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: from, Return: to}
	}
	history := []porcupine.Operation{
		op(0, 1, input{claim, "k", "a"}, output{ok: true}),
		op(2, 9, input{giveUp, "k", "a"}, output{}),
		op(3, 4, input{claim, "k", "b"}, output{ok: true}),
	}
	if porcupine.CheckOperations(model(), withForgottenTries(history)) {
		t.Error("the model accepts a release that was applied and denied")
	}
	history = append(history, op(5, 6, input{verb: crash}, output{}))
	if !porcupine.CheckOperations(model(), withForgottenTries(history)) {
		t.Error("the model refuses what a restart explains")
	}
}

// TestTheModelBites: histories that no lock or lease may have are refused.
func TestTheModelBites(t *testing.T) {
	op := func(from, to int64, in input, out output) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: from, Return: to}
	}
	for name, history := range map[string][]porcupine.Operation{
		"two holders": {
			op(0, 1, input{acquire, "k", "a"}, output{ok: true}),
			op(2, 3, input{acquire, "k", "b"}, output{ok: true}),
		},
		"contended although free": {
			op(0, 1, input{acquire, "k", "a"}, output{}),
		},
		"release of one's own lease denied": {
			op(0, 1, input{claim, "k", "a"}, output{ok: true}),
			op(2, 3, input{giveUp, "k", "a"}, output{}),
		},
		"reclaimed by somebody who never was": {
			op(0, 1, input{claim, "k", "a"}, output{ok: true}),
			op(2, 3, input{giveUp, "k", "b"}, output{other: "c"}),
		},
		"takeover names the wrong previous holder": {
			op(0, 1, input{claim, "k", "a"}, output{ok: true}),
			op(2, 3, input{takeOver, "k", "b"}, output{ok: true}),
		},
		"an unknown call is no excuse for another's lock": {
			op(0, math.MaxInt64, input{acquire, "k", "a"}, output{unknown: true}),
			op(1, 2, input{acquire, "k", "b"}, output{ok: true}),
			op(3, 4, input{acquire, "k", "c"}, output{ok: true}),
		},
	} {
		if porcupine.CheckOperations(model(), history) {
			t.Errorf("the model accepts %s", name)
		}
	}
}
