package coordfx_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// journal is what happened, in order.
type journal struct {
	mu     sync.Mutex
	events []string
	open   int
}

func (j *journal) add(event string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, event)
}

// index is the place of the first such event, or -1.
func (j *journal) index(event string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Index(j.events, event)
}

func (j *journal) openConnections() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.open
}

// dial notes when the connections to Redis close.
func (j *journal) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open++
	j.events = append(j.events, "connection opened")
	return &noted{Conn: c, journal: j}, nil
}

type noted struct {
	net.Conn
	journal *journal
	once    sync.Once
}

func (n *noted) Close() error {
	n.once.Do(func() {
		n.journal.add("connection closed")
		n.journal.mu.Lock()
		n.journal.open--
		n.journal.mu.Unlock()
	})
	return n.Conn.Close()
}

// redisServices are the five that need Redis alone.
type redisServices struct {
	fx.In

	Cache     semantic.RemoteCacheProvider
	Limiter   semantic.RateLimiter
	Lock      semantic.DistributedLock
	Lease     semantic.ResourceLease
	Broadcast semantic.BroadcastChannel
}

// app is the module at a server, with connections that are noted.
func app(address string, j *journal, options ...fx.Option) *fx.App {
	return appOf(coordfx.Config{}, address, j, options...)
}

func appOf(c coordfx.Config, address string, j *journal, options ...fx.Option) *fx.App {
	c.Redis.URL = "redis://" + address
	c.Redis.Dial = j.dial
	return fx.New(
		fx.Options(options...), coordfx.Module, fx.Supply(c), fx.Provide(zap.NewNop),
		fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
	)
}

func start(t *testing.T, a *fx.App) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := a.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, a *fx.App, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within)
	defer cancel()
	return a.Stop(ctx)
}

// calls are one of each service.
func (s redisServices) calls(ctx context.Context) map[string]error {
	limit := semantic.Limit{Max: 5, Window: time.Minute}
	_, _, get := s.Cache.Get(ctx, "late")
	_, take := s.Limiter.TryAcquire(ctx, "late", 1, limit)
	_, acquire := s.Lock.Acquire(ctx, "late", time.Second)
	_, claim := s.Lease.Claim(ctx, "late", "me", time.Second)
	publish := s.Broadcast.Publish(ctx, "late", "x")
	_, subscribe := s.Broadcast.Subscribe(ctx, "late", func(context.Context, semantic.Message) {})
	return map[string]error{
		"cache": get, "limiter": take, "lock": acquire, "lease": claim, "publish": publish, "subscribe": subscribe,
	}
}

func TestConsumersStopThenServicesDrainThenConnectionsClose(t *testing.T) {
	server := testkit.StartEmbeddedRedis(t)
	j := &journal{}
	handling := make(chan struct{})
	a := app(server.Addr(), j, fx.Invoke(func(lc fx.Lifecycle, s redisServices) {
		lc.Append(fx.StartStopHook(func(ctx context.Context) error {
			_, err := s.Broadcast.Subscribe(ctx, "work", func(ctx context.Context, _ semantic.Message) {
				close(handling)
				<-ctx.Done() // drained: told to end, waited for, and still connected
				if _, err := s.Lease.Claim(context.WithoutCancel(ctx), "work", "handler", time.Second); err != nil {
					t.Errorf("the connection is not usable while a handler ends: %v", err)
				}
				j.add("handler ended")
			})
			return errors.Join(err, s.Broadcast.Publish(ctx, "work", 1))
		}, func(ctx context.Context) {
			for service, err := range s.calls(ctx) {
				if err != nil {
					t.Errorf("%s is not usable while its consumer stops: %v", service, err)
				}
			}
			j.add("consumer stopped")
		}))
	}))
	start(t, a)
	<-handling
	if err := stop(t, a, 30*time.Second); err != nil {
		t.Error(err)
	}
	// The subscriber's connection ends with the last subscription, before its handler.
	consumer, handler, closed := j.index("consumer stopped"), j.index("handler ended"), j.index("connection closed")
	if last := j.events[len(j.events)-1]; consumer < 0 || handler < consumer || closed < consumer || last != "connection closed" {
		t.Errorf("order: %q, want consumer, handler, connections", j.events)
	}
	if n := j.openConnections(); n != 0 {
		t.Errorf("%d connections are open after the stop", n)
	}
}

func TestJobsAndRecordsEndBeforeTheConnectionsClose(t *testing.T) {
	server, queue := testkit.StartEmbeddedRedis(t), testkit.NewSQS(nil)
	j := &journal{}
	var c coordfx.Config
	c.SQS.API = queue
	c.SQS.QueueURL, _ = testkit.CreateFIFO(t, queue, "media", 3, nil)
	c.SQS.PollWait = time.Second

	// work is what a job and a handler do: they end when told to, and need Redis for it.
	working := make(chan string, 2)
	work := func(ctx context.Context, name string, lease semantic.ResourceLease) error {
		select {
		case working <- name:
		default: // a later tick, or the record again
		}
		<-ctx.Done()
		if _, err := lease.Claim(context.WithoutCancel(ctx), name, "me", time.Second); err != nil {
			t.Errorf("the connection is not usable while a %s ends: %v", name, err)
		}
		j.add(name + " ended")
		return ctx.Err()
	}
	a := appOf(c, server.Addr(), j,
		cronfx.Provide(func(lease semantic.ResourceLease) cronfx.Job {
			return cronfx.Job{Name: "sweep", Schedule: "* * * * * *", Run: func(ctx context.Context, _ cronfx.Tick) error {
				return work(ctx, "job", lease)
			}}
		}),
		sqsfanout.Provide(func(lease semantic.ResourceLease) sqsfanout.Consumer {
			return sqsfanout.Consumer{Domain: "media", Handle: func(ctx context.Context, _ semantic.FanoutRecord) error {
				return work(ctx, "record", lease)
			}}
		}),
		fx.Replace(fx.Annotate(testkit.NewIdempotencyLog(nil), fx.As(new(semantic.IdempotencyLog)))),
	)
	start(t, a)
	producer, err := sqsfanout.NewProducer(c.SQS, nil)
	if err != nil {
		t.Fatal(err)
	}
	record := semantic.FanoutRecord{OrganizationID: "org", RecordID: "1", Body: []byte("{}")}
	records := func(yield func(semantic.FanoutRecord, error) bool) { yield(record, nil) }
	if _, err := producer.Enqueue(t.Context(), "media", records); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case <-working:
		case <-time.After(time.Minute):
			t.Fatal("the job and the record do not run")
		}
	}
	if err := stop(t, a, 30*time.Second); err != nil {
		t.Error(err)
	}
	job, handled := j.index("job ended"), j.index("record ended")
	if last := j.events[len(j.events)-1]; job < 0 || handled < 0 || last != "connection closed" {
		t.Errorf("order: %q, want job and record before the last connection", j.events)
	}
	if n := j.openConnections(); n != 0 {
		t.Errorf("%d connections are open after the stop", n)
	}
}

// A consumer that appended its hook before its services were made stops after them
// (go-redis#1003: closing does not wait, and what comes later gets some network error).
func TestAnEarlyRegisteredConsumerGetsATypedErrorAtStop(t *testing.T) {
	server := testkit.StartEmbeddedRedis(t)
	j := &journal{}
	var s redisServices
	a := app(server.Addr(), j,
		fx.Invoke(func(lc fx.Lifecycle) {
			lc.Append(fx.StopHook(func(ctx context.Context) {
				begin := time.Now()
				for service, err := range s.calls(ctx) {
					if !errors.Is(err, semantic.ErrClosed) {
						t.Errorf("%s after its stop: %v, want ErrClosed", service, err)
					}
				}
				if d := time.Since(begin); d > 5*time.Second {
					t.Errorf("the late calls took %v", d)
				}
				s.Lock.Release(ctx, "late", "token") // best effort: no panic, no wait
				j.add("consumer stopped")
			}))
		}),
		fx.Invoke(func(injected redisServices) { s = injected }),
	)
	start(t, a)
	for service, err := range s.calls(t.Context()) {
		if err != nil {
			t.Errorf("%s: %v", service, err)
		}
	}
	if err := stop(t, a, 30*time.Second); err != nil {
		t.Error(err)
	}
	if closed, consumer := j.index("connection closed"), j.index("consumer stopped"); closed < 0 || consumer < closed {
		t.Errorf("order: %q, want the consumer last", j.events)
	}
}

func TestASlowHandlerDoesNotStarveTheHooksAfterIt(t *testing.T) {
	server := testkit.StartEmbeddedRedis(t)
	j := &journal{}
	handling, release := make(chan struct{}), make(chan struct{})
	a := app(server.Addr(), j, fx.Invoke(func(lc fx.Lifecycle, s redisServices) {
		lc.Append(fx.StartHook(func(ctx context.Context) error {
			_, err := s.Broadcast.Subscribe(ctx, "work", func(context.Context, semantic.Message) {
				close(handling)
				<-release // deaf to its context
			})
			return errors.Join(err, s.Broadcast.Publish(ctx, "work", 1))
		}))
	}))
	start(t, a)
	<-handling
	err := stop(t, a, 2*time.Second)
	failsWith(t, err, `a handler of channel "work" is still running`)
	if n := j.openConnections(); n != 0 {
		t.Errorf("%d connections are open: the hooks after the slow one did not run: %q", n, j.events)
	}
	close(release)
}

// fx gives all stop hooks one deadline and runs none after it: a consumer that is deaf
// to its context takes the stop of everything before it away, Coord's too.
func TestWhatFxDoesAfterAConsumerThatOutlivesTheStopDeadline(t *testing.T) {
	release, done := make(chan struct{}), make(chan struct{})
	first := false
	var lifecycle fx.Lifecycle
	a := fx.New(
		fx.Populate(&lifecycle),
		fx.Invoke(func(lc fx.Lifecycle) {
			lc.Append(fx.StopHook(func() { first = true }))
			lc.Append(fx.StopHook(func() { <-release; close(done) }))
		}),
		fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
	)
	start(t, a)
	if err := stop(t, a, 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v", err)
	}
	close(release)
	<-done
	if err := stop(t, a, time.Minute); err != nil {
		t.Errorf("second stop: %v", err)
	}
	if first {
		t.Error("fx has learned to run the rest of the stop hooks: say so in docs/boundary.md")
	}
}

func TestAFailedStartLeavesNothingBehind(t *testing.T) {
	broken := errors.New("broken on purpose")
	// A server that takes connections and never answers.
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	use := fx.Invoke(func(redisServices) {})

	for name, c := range map[string]struct {
		server  func(t *testing.T) string
		options fx.Option
		timeout time.Duration
		build   string // error of fx.New
		start   string // error of Start
	}{
		"construction fails after the services are made": {
			options: fx.Options(use, fx.Invoke(func() error { return broken })), build: broken.Error(),
		},
		"a constructor fails that needs the services": {
			options: fx.Options(fx.Provide(func(redisServices) (*keeper, error) { return nil, broken }), fx.Invoke(func(*keeper) {})),
			build:   broken.Error(),
		},
		"a service's start hook fails after the connection is proved": {
			server:  func(t *testing.T) string { return testkit.StartEmbeddedRedis(t).Addr() },
			options: fx.Invoke(func(lc fx.Lifecycle, _ redisServices) { lc.Append(fx.StartHook(func() error { return broken })) }),
			start:   broken.Error(),
		},
		"Redis is not there": {options: use, start: "redis is not ready"},
		"Redis never answers": { // fx#1035: past its deadline a start is not rolled back
			server:  func(*testing.T) string { return deaf.Addr().String() },
			options: use, timeout: time.Second, start: "redis is not ready",
		},
		"MongoDB never answers": { // the connection to Redis has to close too
			server:  func(t *testing.T) string { return testkit.StartEmbeddedRedis(t).Addr() },
			options: fx.Invoke(func(redisServices, semantic.IdempotencyLog) {}), timeout: 2 * time.Second, start: "mongo log is not ready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			address := "127.0.0.1:1"
			if c.server != nil {
				address = c.server(t)
			}
			here := goleak.IgnoreCurrent()
			var config coordfx.Config
			config.Mongo.URI = "mongodb://" + deaf.Addr().String() + "/test"
			a := appOf(config, address, j, c.options)
			if c.build != "" {
				if failsWith(t, a.Err(), c.build); len(j.events) > 0 {
					t.Errorf("construction does I/O: %q", j.events)
				}
			} else {
				if err := a.Err(); err != nil {
					t.Fatal(err)
				}
				timeout := c.timeout
				if timeout == 0 {
					timeout = 30 * time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				err := a.Start(ctx)
				failsWith(t, err, c.start)
				if strings.HasPrefix(name, "Redis") && !errors.Is(err, semantic.ErrUnavailable) && !errors.Is(err, semantic.ErrUnknown) {
					t.Errorf("err = %v: not typed", err)
				}
			}
			if n := j.openConnections(); n != 0 {
				t.Errorf("%d connections are left open", n)
			}
			goleak.VerifyNone(t, here)
		})
	}
}
