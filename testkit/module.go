package testkit

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.uber.org/fx"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/sqsfanout"
)

// Module takes the place of coordfx.Module in a test: it provides the same seven types
// as in-memory doubles, runs the service's cron jobs and consumers for real over them,
// and needs neither a server nor a configuration. It also provides the *[World] that
// the doubles live in, through which a test looks, injects faults and moves time.
// [Operations] adds the operation coordinator.
//
//	app := fxtest.New(t, testkit.Module, booking.Module, fx.Populate(&world))
//
// A Config that the service supplies is left unread.
var Module = ModuleOf(nil)

// ModuleOf is [Module] over a world that the test made, so that several apps can share
// it as replicas do, or live by a controllable clock. A nil world is a new one.
func ModuleOf(world *World) fx.Option {
	return fx.Module("testkit",
		fx.Provide(
			func() *World {
				if world == nil {
					return NewWorld(nil)
				}
				return world
			},
			// As the real ones, they end with the app.
			func(lc fx.Lifecycle, w *World) semantic.RemoteCacheProvider {
				return closing(lc, w.Cache.Client("test"))
			},
			func(lc fx.Lifecycle, w *World) semantic.RateLimiter { return closing(lc, w.Limiter.Client("test")) },
			func(lc fx.Lifecycle, w *World) semantic.DistributedLock { return closing(lc, w.Lock.Client("test")) },
			func(lc fx.Lifecycle, w *World) semantic.ResourceLease { return closing(lc, w.Lease.Client()) },
			func(lc fx.Lifecycle, w *World) semantic.BroadcastChannel {
				return closing(lc, w.Broadcast.Client("test"))
			},
			func(lc fx.Lifecycle, w *World) semantic.IdempotencyLog { return closing(lc, w.Log.Client()) },
			provideRunner,
		),
		fx.Invoke(watch, runConsumers),
	)
}

// Operations takes the place of coordfx.Operations beside [Module] or [ModuleOf]: it
// provides [operation.Coordinator] as a double in the same [World], with the default
// lease and retention. It ends with the app. An operationstore.Config that the service
// supplies is left unread.
//
//	app := fxtest.New(t, testkit.Module, testkit.Operations, payments.Module, fx.Populate(&world))
var Operations = fx.Module("testkit.operations",
	fx.Provide(func(lc fx.Lifecycle, w *World) operation.Coordinator {
		watchDoubles(lc, w, "operations", &w.Operations.injector)
		return closing(lc, w.Operations.Client(0, 0))
	}),
)

func closing[C interface{ Close() }](lc fx.Lifecycle, client C) C {
	lc.Append(fx.StopHook(client.Close))
	return client
}

// World is the memory behind the doubles of one cluster: what the replicas share.
type World struct {
	Clock     semantic.Clock
	Cache     *CacheBackend
	Limiter   *LimiterBackend
	Lock      *LockBackend
	Lease     *LeaseBackend
	Broadcast *BroadcastBackend
	Log       *IdempotencyLogBackend
	// Operations is what the coordinators of [Operations] share.
	Operations *OperationBackend
	// Health, which a test may set before its app is made, is told of the doubles by the
	// names of the real backends: healthy, until a fault is injected.
	Health *health.Health
	// Queue is the SQS that fan-out jobs send to and consumers receive from.
	Queue *SQS

	queueURL string
}

// NewWorld returns an empty world; a nil clock is the system's.
func NewWorld(clock semantic.Clock) *World {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	w := &World{
		Clock: clock,
		Cache: NewCacheBackend(clock), Limiter: NewLimiterBackend(clock),
		Lock: NewLockBackend(clock), Lease: NewLeaseBackend(clock),
		Broadcast: NewBroadcastBackend(clock), Log: NewIdempotencyLogBackend(clock),
		Operations: NewOperationBackend(clock), Queue: NewSQS(clock),
	}
	w.queueURL = w.Queue.mustCreate("coord")
	return w
}

// Inject makes f happen to every Redis-backed double and to the log until heal is
// called.
func (w *World) Inject(f Fault) (heal func()) {
	heals := []func(){
		w.Cache.Inject(f), w.Limiter.Inject(f), w.Lock.Inject(f),
		w.Lease.Inject(f), w.Broadcast.Inject(f), w.Log.Inject(f), w.Operations.Inject(f),
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

// fanoutConfig is the configuration of producers and consumers in this world.
func (w *World) fanoutConfig() sqsfanout.Config {
	return sqsfanout.Config{API: briefPolls{w.Queue}, QueueURL: w.queueURL, PollWait: time.Second, Clock: w.Clock, Health: w.Health}
}

// watch registers the doubles with the world's Health for the life of the app. Unlike the
// real ones, these are registered whatever the service injects.
func watch(lc fx.Lifecycle, w *World) {
	watchDoubles(lc, w, "redis", &w.Cache.injector, &w.Limiter.injector, &w.Lock.injector, &w.Lease.injector)
	watchDoubles(lc, w, "redis_subscriber", &w.Broadcast.injector)
	watchDoubles(lc, w, "mongodb", &w.Log.injector)
	lc.Append(fx.StartStopHook(w.Health.Began, w.Health.Stopping))
}

// watchDoubles registers doubles as the part called name.
func watchDoubles(lc fx.Lifecycle, w *World, name string, doubles ...*injector) {
	part := w.Health.Register(name, func(ctx context.Context) health.Result {
		for _, double := range doubles {
			if err := double.before(ctx, "health", name); err != nil {
				return health.Result{Err: err, Cause: semantic.FailureName(err)}
			}
		}
		return health.Result{}
	})
	lc.Append(fx.StartStopHook(part.Started, part.Closed))
}

func provideRunner(lc fx.Lifecycle, w *World, lock semantic.DistributedLock, lease semantic.ResourceLease, jobs cronfx.Jobs) (*cronfx.Runner, error) {
	runner, err := cronfx.NewRunner(cronfx.Params{
		Lock: lock, Lease: lease, InstanceID: "test", Clock: w.Clock, Jobs: jobs.Definitions,
		Fanout: func() (semantic.Fanout, error) { return sqsfanout.NewProducer(w.fanoutConfig(), nil) },
	})
	if err == nil {
		cronfx.Manage(lc, runner)
	}
	return runner, err
}

func runConsumers(lc fx.Lifecycle, w *World, p sqsfanout.HostParams) error {
	if len(p.Consumers) == 0 {
		return nil
	}
	host, err := p.Host(w.fanoutConfig(), nil)
	if err == nil {
		sqsfanout.Register(lc, host)
	}
	return err
}

// briefPolls answers a receive that finds nothing after a moment, so that a test does
// not stop for as long as a long poll takes.
type briefPolls struct{ *SQS }

// ReceiveMessage implements [sqsfanout.API].
func (b briefPolls) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	brief := *in
	brief.WaitTimeSeconds = 0
	out, err := b.SQS.ReceiveMessage(ctx, &brief, o...)
	if err == nil && len(out.Messages) == 0 {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	return out, err
}

// mustCreate makes a FIFO queue with a dead-letter queue; an empty SQS refuses neither.
func (s *SQS) mustCreate(name string) (queueURL string) {
	ctx := context.Background()
	create := func(name string, attributes map[string]string) *string {
		attributes["FifoQueue"] = "true"
		out, err := s.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		if err != nil {
			panic(err)
		}
		return out.QueueUrl
	}
	got, err := s.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl:       create(name+"-dead.fifo", map[string]string{}),
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		panic(err)
	}
	return aws.ToString(create(name+".fifo", map[string]string{
		"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId",
		"RedrivePolicy": `{"deadLetterTargetArn":"` + got.Attributes["QueueArn"] + `","maxReceiveCount":5}`,
	}))
}
