package recipes

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/semantic"
)

// Reports writes a report each night, on whichever replica is first.
type Reports struct {
	lock  semantic.DistributedLock
	write func(ctx context.Context) error
}

// NewReports returns the reports of a service.
func NewReports(lock semantic.DistributedLock, write func(ctx context.Context) error) *Reports {
	return &Reports{lock, write}
}

// Nightly is called on every replica at the same time.
func (r *Reports) Nightly(ctx context.Context) error {
	ran, err := r.lock.WithLock(ctx, "nightly-report", 10*time.Minute, r.write, semantic.WithMinHold(time.Minute))
	if !ran && err == nil {
		return nil // another replica has it: the usual case, not worth a log line
	}
	return err // of write; or the lock could not say, and nothing ran
}

// Admin has endpoints that must not run beside themselves.
type Admin struct {
	lock    semantic.DistributedLock
	reindex func(ctx context.Context) error
}

// NewAdmin returns the endpoints.
func NewAdmin(lock semantic.DistributedLock, reindex func(ctx context.Context) error) *Admin {
	return &Admin{lock, reindex}
}

// Reindex answers 204, or 409 while it runs elsewhere, or 503 when nobody can say.
func (a *Admin) Reindex(w http.ResponseWriter, r *http.Request) {
	ran, err := a.lock.WithLock(r.Context(), "reindex", 2*time.Minute, a.reindex)
	switch {
	case ran && err == nil:
		w.WriteHeader(http.StatusNoContent)
	case ran:
		http.Error(w, "reindex failed", http.StatusInternalServerError)
	case err == nil:
		http.Error(w, "reindex is running already", http.StatusConflict)
	default:
		http.Error(w, "cannot say whether reindex is running", http.StatusServiceUnavailable)
	}
}

// ErrStale says that a later holder of the lock has written the order.
var ErrStale = errors.New("the order was written by a later holder of the lock")

// Pay marks an order as paid under its lock, and is refused by the document itself when
// the lock went to another while this process was paused.
func Pay(ctx context.Context, lock semantic.DistributedLock, orders *mongo.Collection, id string) (ran bool, err error) {
	return lock.WithLock(ctx, "order:"+id, 30*time.Second, func(ctx context.Context) error {
		fence, _ := semantic.FenceFromContext(ctx)
		result, err := orders.UpdateOne(ctx,
			mongolog.FenceFilter(fence, bson.D{{Key: "_id", Value: id}}),
			mongolog.FenceUpdate(fence, bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: "paid"}}}}))
		if err == nil && result.MatchedCount == 0 {
			return ErrStale
		}
		return err
	})
}
