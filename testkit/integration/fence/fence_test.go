// Package fence shows the fence guard of package mongolog on a server.
package fence

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/integration/ferret"
)

// TestAPausedHoldersStaleWriteIsRefused: the first holder reads, is paused until its lock
// has expired and a second holder has written, and then writes: the document matches no more.
func TestAPausedHoldersStaleWriteIsRefused(t *testing.T) {
	ctx := t.Context()
	client, err := mongo.Connect(options.Client().ApplyURI(ferret.StartFerretDB(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()
	orders := client.Database("shop").Collection("orders")
	if _, err := orders.InsertOne(ctx, bson.D{{Key: "_id", Value: "o1"}, {Key: "state", Value: "new"}}); err != nil {
		t.Fatal(err)
	}

	server := testkit.StartRedis(t)
	services, err := redismodule.Open(redismodule.Config{URL: server.URL()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = services.Close(ctx) }()
	hold := func(ttl time.Duration) semantic.Fence {
		claim, err := services.Lock.Acquire(ctx, "order:o1", ttl, semantic.WithWait(10*time.Second))
		if err != nil || !claim.Acquired {
			t.Fatalf("acquire: %+v, %v", claim, err)
		}
		return claim.Fence
	}
	write := func(fence semantic.Fence, state string) (matched int64) {
		result, err := orders.UpdateOne(ctx,
			mongolog.FenceFilter(fence, bson.D{{Key: "_id", Value: "o1"}}),
			mongolog.FenceUpdate(fence, bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: state}}}}))
		if err != nil {
			t.Fatalf("write of %s: %v", state, err)
		}
		return result.MatchedCount
	}

	paused := hold(50 * time.Millisecond)
	successor := hold(time.Minute) // waits until the first lock has expired
	if successor <= paused {
		t.Fatalf("fence %d of the successor is not above %d", successor, paused)
	}
	if write(successor, "paid") != 1 || write(successor, "shipped") != 1 {
		t.Error("the present holder's writes were refused")
	}
	if write(paused, "cancelled") != 0 {
		t.Error("the paused holder's stale write was taken")
	}
	var order struct{ State string }
	if err := orders.FindOne(ctx, bson.D{{Key: "_id", Value: "o1"}}).Decode(&order); err != nil || order.State != "shipped" {
		t.Errorf("order is %q, %v, want shipped", order.State, err)
	}
}
