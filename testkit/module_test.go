package testkit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// bookings is a service that uses all seven types.
type bookings struct {
	fx.In

	Cache     semantic.RemoteCacheProvider
	Limiter   semantic.RateLimiter
	Lock      semantic.DistributedLock
	Lease     semantic.ResourceLease
	Broadcast semantic.BroadcastChannel
	Log       semantic.IdempotencyLog
	Runner    *cronfx.Runner
}

func TestAServiceRunsOnDoublesWithoutAServerInUnderATenthOfASecond(t *testing.T) {
	handled := make(chan string, 10)
	fastest := time.Hour
	for try := 0; try < 20 && fastest > 100*time.Millisecond; try++ { // a busy machine may hold some up
		began := time.Now()
		var b bookings
		var world *testkit.World
		app := fxtest.New(t, testkit.Module, fx.NopLogger,
			cronfx.Provide(func() cronfx.FanoutJob {
				return cronfx.FanoutJob{Name: "pending", Schedule: "@yearly", Scan: func(context.Context, cronfx.Tick) semantic.Records {
					return func(yield func(semantic.FanoutRecord, error) bool) {
						yield(semantic.FanoutRecord{OrganizationID: "acme", RecordID: "r1", Body: []byte("{}")}, nil)
					}
				}}
			}),
			sqsfanout.Provide(func() sqsfanout.Consumer {
				return sqsfanout.Consumer{Domain: "pending", Handle: func(_ context.Context, r semantic.FanoutRecord) error {
					handled <- r.RecordID
					return nil
				}}
			}),
			fx.Populate(&b.Cache, &b.Limiter, &b.Lock, &b.Lease, &b.Broadcast, &b.Log, &b.Runner, &world),
		)
		app.RequireStart()
		if r, err := b.Runner.Trigger(t.Context(), "pending"); err != nil || r.Fanout.Enqueued != 1 {
			t.Fatalf("triggered run: %+v, %v", r, err)
		}
		if got := <-handled; got != "r1" {
			t.Fatalf("handled %q", got)
		}
		app.RequireStop()
		fastest = min(fastest, time.Since(began))
	}
	if fastest > 100*time.Millisecond {
		t.Errorf("start, one job with its consumer, and stop took %v at best", fastest)
	}
}

func TestAWorldInjectsAnOutageIntoEveryDouble(t *testing.T) {
	var b bookings
	var world *testkit.World
	app := fxtest.New(t, testkit.Module, fx.NopLogger, fx.Populate(&b.Cache, &b.Limiter, &b.Lock, &b.Lease, &b.Broadcast, &b.Log, &world))
	app.RequireStart()
	defer app.RequireStop()
	heal := world.Inject(testkit.FaultDown)
	ctx := t.Context()
	_, _, cacheErr := b.Cache.Get(ctx, "k")
	_, limitErr := b.Limiter.TryAcquire(ctx, "k", 1, semantic.PerSecond(1))
	_, lockErr := b.Lock.Acquire(ctx, "k", time.Second)
	_, leaseErr := b.Lease.Claim(ctx, "k", "h", time.Second)
	publishErr := b.Broadcast.Publish(ctx, "k", 1)
	logErr := b.Log.TryAcquire(ctx, semantic.IdempotencyRequest{OrganizationID: "o", Domain: "d", Key: "k", TTLDays: 1}).Err
	for name, err := range map[string]error{"cache": cacheErr, "limiter": limitErr, "lock": lockErr, "lease": leaseErr, "broadcast": publishErr, "log": logErr} {
		if !errors.Is(err, semantic.ErrUnavailable) {
			t.Errorf("%s in an outage: %v, want ErrUnavailable", name, err)
		}
	}
	heal()
	if claim, err := b.Lock.Acquire(ctx, "k", time.Second); err != nil || !claim.Acquired {
		t.Errorf("lock after the outage: %+v, %v", claim, err)
	}
}

func TestDoublesEndWithTheApp(t *testing.T) {
	var b bookings
	app := fxtest.New(t, testkit.Module, fx.NopLogger, fx.Populate(&b.Cache, &b.Limiter, &b.Lock, &b.Lease, &b.Broadcast, &b.Log))
	app.RequireStart()
	app.RequireStop()
	ctx := t.Context()
	_, _, cacheErr := b.Cache.Get(ctx, "k")
	_, limitErr := b.Limiter.TryAcquire(ctx, "k", 1, semantic.PerSecond(1))
	_, lockErr := b.Lock.Acquire(ctx, "k", time.Second)
	_, leaseErr := b.Lease.Claim(ctx, "k", "h", time.Second)
	for name, err := range map[string]error{
		"cache": cacheErr, "limiter": limitErr, "lock": lockErr, "lease": leaseErr, "broadcast": b.Broadcast.Publish(ctx, "k", 1),
		"log": b.Log.TryAcquire(ctx, semantic.IdempotencyRequest{OrganizationID: "o", Domain: "d", Key: "k", TTLDays: 1}).Err,
	} {
		if !errors.Is(err, semantic.ErrClosed) {
			t.Errorf("%s after the stop: %v, want ErrClosed", name, err)
		}
	}
}

// payments is a service that uses the operation coordinator, and its peer.
type payments struct {
	fx.In

	Coordinator operation.Coordinator
	Lock        semantic.DistributedLock
}

func TestOperationsAreReplicasOfOneWorldBesideTheModule(t *testing.T) {
	clock := testkit.NewClock()
	world := testkit.NewWorld(clock)
	apps, services := make([]*fxtest.App, 2), make([]payments, 2)
	for i := range apps {
		apps[i] = fxtest.New(t, testkit.ModuleOf(world), testkit.Operations, fx.NopLogger, fx.Populate(&services[i]))
		apps[i].RequireStart()
	}
	id := operation.Identity{Tenant: "acme", Operation: "charge", IdempotencyKey: "k", Fingerprint: strings.Repeat("0", 64), DurableID: "payment-1"}
	first, err := services[0].Coordinator.Begin(t.Context(), id)
	if err != nil || first.Outcome != operation.BeginAcquired || first.Lease.Term != operation.DefaultLease {
		t.Fatalf("begin: %+v, %v", first, err)
	}
	if r, err := services[1].Coordinator.Begin(t.Context(), id); err != nil || r.Outcome != operation.BeginInProgress {
		t.Errorf("begin on the other replica: %+v, %v", r, err)
	}
	clock.Advance(operation.DefaultLease)
	if r, err := services[1].Coordinator.Begin(t.Context(), id); err != nil || !r.Lease.Takeover || r.Lease.Attempt != 2 {
		t.Errorf("begin after the lease: %+v, %v", r, err)
	}
	heal := world.Inject(testkit.FaultDown)
	if _, err := services[0].Coordinator.ReadStatus(t.Context(), id); !errors.Is(err, operation.ErrUnavailable) {
		t.Errorf("in an outage: %v", err)
	}
	heal()
	apps[0].RequireStop()
	if _, err := services[0].Coordinator.ReadStatus(t.Context(), id); !errors.Is(err, operation.ErrClosed) {
		t.Errorf("after the stop: %v", err)
	}
	apps[1].RequireStop()
}
