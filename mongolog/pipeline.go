package mongolog

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/wrkbelt/coord/semantic"
)

// pipelineRecords are the records on a server with update pipelines and $$NOW.
type pipelineRecords struct{ *mongo.Collection }

// acquire is one findAndModify with upsert. Its filter is equality over exactly the
// unique index, so of concurrent inserts one wins and the others find its document;
// where the server reports their duplicate key instead of looking again, they look
// again here. Sent again with the same attempt it changes nothing.
func (c pipelineRecords) acquire(ctx context.Context, a attempt) (document, error) {
	for try := 1; ; try++ {
		var doc document
		err := write(ctx, func() error {
			return c.FindOneAndUpdate(ctx, a.identity(), acquirePipeline(a), options.FindOneAndUpdate().
				SetUpsert(true).SetReturnDocument(options.After)).Decode(&doc)
		})
		if err == nil || !duplicateKey(err) {
			return doc, decoded(err)
		}
		if err := ourIndex(err); err != nil {
			return doc, err
		}
		if try == replacements {
			return doc, contended(err)
		}
	}
}

// acquirePipeline computes the document after the attempt from the one before, which
// is empty but for its identity when there is none. Names from the caller stand in
// $literal: a string that begins with a dollar would be read as a field.
func acquirePipeline(a attempt) bson.A {
	isNew := op("$eq", op("$type", "$attempt_id"), "missing")
	isFresh := op("$or", isNew, op("$lte", "$expires_at", "$$NOW"))
	allowed := bson.A{}
	if a.RetryFailed {
		allowed = append(allowed, op("$eq", "$status", string(semantic.StatusFailed)))
	}
	if a.TakeOverPendingAfter > 0 {
		age := semantic.Milliseconds(a.TakeOverPendingAfter)
		allowed = append(allowed, op("$and",
			op("$eq", "$status", string(semantic.StatusPending)),
			op("$lte", op("$add", "$attempted_at", age), "$$NOW")))
	}
	mayReplace := bson.D{{Key: "$or", Value: allowed}} // of nothing is false
	fingerprint := op("$cond", isFresh, "", "$fingerprint")
	if a.Fingerprint != "" {
		mayReplace = op("$and", mayReplace, op("$in", "$fingerprint", bson.A{"", literal(a.Fingerprint)}))
		fingerprint = literal(a.Fingerprint)
	}
	takes := op("$or", isNew, op("$and",
		op("$ne", "$attempt_id", literal(a.id)), // one's own earlier try stays
		op("$or", isFresh, mayReplace)))
	after := bson.D{
		{Key: "organization_id", Value: literal(a.OrganizationID)},
		{Key: "domain", Value: literal(a.Domain)},
		{Key: "idempotency_key", Value: literal(a.Key)},
		{Key: "status", Value: string(semantic.StatusPending)},
		{Key: "metadata", Value: literal(bson.A{})},
		{Key: "fingerprint", Value: fingerprint},
		{Key: "attempt_id", Value: literal(a.id)},
		{Key: "attempt", Value: op("$cond", isFresh, 1, op("$add", "$attempt", 1))},
		{Key: "taken_over", Value: op("$cond", isFresh, false, op("$eq", "$status", string(semantic.StatusPending)))},
		{Key: "attempted_at", Value: "$$NOW"},
		{Key: "created_at", Value: op("$cond", isFresh, "$$NOW", "$created_at")},
		{Key: "updated_at", Value: "$$NOW"},
		{Key: "expires_at", Value: op("$add", "$$NOW", a.ttl().Milliseconds())},
	}
	return bson.A{bson.D{{Key: "$replaceWith", Value: op("$cond", takes, op("$mergeObjects", "$$ROOT", after), "$$ROOT")}}}
}

// op is an expression with its arguments.
func op(name string, args ...any) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }

// literal is a value that the server does not evaluate.
func literal(v any) bson.D { return bson.D{{Key: "$literal", Value: v}} }

// finalize is one update, and one read if it matched nothing.
func (c pipelineRecords) finalize(ctx context.Context, id recordID, f semantic.Finalization) (bool, error) {
	return finalize(ctx, c.Collection, id, f, bson.E{Key: "$expr", Value: op("$gt", "$expires_at", "$$NOW")})
}

// hasPipelines finds out whether the server takes the pipeline, on a document that
// does not exist. One round trip, nothing is written.
func hasPipelines(ctx context.Context, c *mongo.Collection) (bool, error) {
	probe := newAttempt(semantic.IdempotencyRequest{
		OrganizationID: "probe", Domain: "probe", Key: "probe", TTLDays: 1,
		Fingerprint: "probe", RetryFailed: true, TakeOverPendingAfter: semantic.MinTTL,
	})
	filter := bson.D{{Key: "_id", Value: bson.NewObjectID()}, {Key: "$expr", Value: op("$gt", "$expires_at", "$$NOW")}}
	err := c.FindOneAndUpdate(ctx, filter, acquirePipeline(probe)).Err()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return true, nil
	case incapable(err):
		return false, nil
	}
	return false, err
}
