package operationstore_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/fx"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/operationstore"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func identity(key string) operation.Identity {
	return operation.Identity{
		Tenant: "acme", Operation: "charge", IdempotencyKey: key,
		Fingerprint: strings.Repeat("0", 64), DurableID: "payment-" + key,
	}
}

// Without fx: open, start, work, close.
func ExampleOpen() {
	redis, err := testkit.LaunchEmbeddedRedis() // stands for the primary
	if err != nil {
		fmt.Println(err)
		return
	}
	defer redis.Close()

	operations, err := operationstore.Open(operationstore.Config{
		Redis:     redismodule.Config{URL: redis.URL()},
		Namespace: "billing-operations",
		Lease:     time.Minute,
	}, nil)
	if err != nil {
		fmt.Println(err) // names every setting that is out of range
		return
	}
	ctx := context.Background()
	defer func() { _ = operations.Close(ctx) }()
	if err := operations.Start(ctx); err != nil {
		fmt.Println(err) // names what could not be proven, or what to look at
		return
	}

	begun, err := operations.Begin(ctx, identity("1"))
	fmt.Println(begun.Outcome, begun.Lease.Term, err)
	done, err := operations.Complete(ctx, begun.Lease, "receipt/1")
	fmt.Println(done.Outcome, err)
	status, err := operations.ReadStatus(ctx, identity("1"))
	fmt.Println(status.Outcome, status.ResultRef, err)
	// Output:
	// acquired 1m0s <nil>
	// completed <nil>
	// completed receipt/1 <nil>
}

// With fx, and without the rest of Coord: coordfx.Operations is the same beside
// coordfx.Module.
func Example_module() {
	redis, err := testkit.LaunchEmbeddedRedis()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer redis.Close()

	var coordinator operation.Coordinator
	app := fx.New(fx.NopLogger, operationstore.Module,
		fx.Supply(observability.New(nil), operationstore.Config{Redis: redismodule.Config{URL: redis.URL()}}),
		fx.Populate(&coordinator))
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	begun, err := coordinator.Begin(ctx, identity("2"))
	fmt.Println(begun.Outcome, begun.MustReconcile, err)
	abandoned, err := coordinator.Abandon(ctx, begun.Lease) // nothing was done yet
	fmt.Println(abandoned.Outcome, err)
	fmt.Println(app.Stop(ctx))
	// Output:
	// acquired true <nil>
	// abandoned <nil>
	// <nil>
}

// Settings that are out of range are named all at once, with what fits.
func ExampleConfig_Settled() {
	_, err := operationstore.Config{
		Redis: redismodule.Config{URL: "redis://primary:6379"},
		Lease: 2 * time.Hour, QueueDeadline: 3 * time.Second,
	}.Settled()
	fmt.Println(err)
	// Output:
	// operations Lease: 2h0m0s: want 1ms to 1h0m0s
	// operations QueueDeadline: 3s: want 1ms to 2s
}
