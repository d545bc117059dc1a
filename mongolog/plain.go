package mongolog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/wrkbelt/coord/semantic"
)

// plainRecords are the records on a server without update pipelines. Times come from
// the server's hello, and a document is replaced only if it is still the one read.
type plainRecords struct{ *mongo.Collection }

// replacements is how often a document is looked at again because it changed or went
// away between two steps.
const replacements = 8

// acquire inserts, or reads what is there and replaces it if the request may. Sent
// again with the same attempt it finds its own document.
func (c plainRecords) acquire(ctx context.Context, a attempt) (document, error) {
	for range replacements {
		now, err := serverTime(ctx, c.Collection)
		if err != nil {
			return document{}, err
		}
		doc := a.first(now)
		err = write(ctx, func() error { _, err := c.InsertOne(ctx, doc); return err })
		if err == nil || !duplicateKey(err) {
			return doc, err
		}
		if err := ourIndex(err); err != nil {
			return document{}, err
		}
		var existing document
		switch err := c.FindOne(ctx, a.identity()).Decode(&existing); {
		case errors.Is(err, mongo.ErrNoDocuments):
			continue // deleted meanwhile: insert once more
		case err != nil:
			return document{}, decoded(err)
		case existing.AttemptID == a.id, !existing.yieldsTo(a, now):
			return existing, nil
		}
		doc = a.after(existing, now)
		filter := bson.D{
			{Key: "_id", Value: existing.ID},
			{Key: "attempt_id", Value: existing.AttemptID},
			{Key: "status", Value: existing.Status},
		}
		err = write(ctx, func() error {
			return c.FindOneAndReplace(ctx, filter, doc, options.FindOneAndReplace().SetReturnDocument(options.After)).Decode(&doc)
		})
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return doc, decoded(err)
		}
	}
	return document{}, contended(nil)
}

// first is the document of an attempt at a new side effect.
func (a attempt) first(now time.Time) document {
	return document{
		ID: bson.NewObjectID(), OrganizationID: a.OrganizationID, Domain: a.Domain, Key: a.Key,
		Status: string(semantic.StatusPending), Metadata: []pair{}, Fingerprint: a.Fingerprint,
		AttemptID: a.id, Attempt: 1,
		AttemptedAt: now, CreatedAt: now, UpdatedAt: now, ExpiresAt: now.Add(a.ttl()),
	}
}

// after is the document of an attempt that takes the place of before.
func (a attempt) after(before document, now time.Time) document {
	doc := a.first(now)
	doc.ID = before.ID
	if before.expired(now) {
		return doc
	}
	doc.CreatedAt, doc.Attempt = before.CreatedAt, before.Attempt+1
	doc.TakenOver = before.Status == string(semantic.StatusPending)
	if a.Fingerprint == "" {
		doc.Fingerprint = before.Fingerprint
	}
	return doc
}

// yieldsTo tells whether the attempt may take d's place.
func (d document) yieldsTo(a attempt, now time.Time) bool {
	switch {
	case d.expired(now):
		return true
	case d.conflicts(a.IdempotencyRequest):
		return false
	case d.Status == string(semantic.StatusFailed):
		return a.RetryFailed
	case d.Status == string(semantic.StatusPending) && a.TakeOverPendingAfter > 0:
		age := time.Duration(semantic.Milliseconds(a.TakeOverPendingAfter)) * time.Millisecond
		return !now.Before(d.AttemptedAt.Add(age))
	}
	return false
}

func (d document) expired(now time.Time) bool { return !now.Before(d.ExpiresAt) }

// finalize asks for the time, updates, and reads if that matched nothing.
func (c plainRecords) finalize(ctx context.Context, id recordID, f semantic.Finalization) (bool, error) {
	now, err := serverTime(ctx, c.Collection)
	if err != nil {
		return false, err
	}
	return finalize(ctx, c.Collection, id, f, bson.E{Key: "expires_at", Value: bson.D{{Key: "$gt", Value: now}}})
}

// finalize writes the end of an attempt that is pending and, by the condition live,
// not expired. Sent again it finds what it wrote.
func finalize(ctx context.Context, c *mongo.Collection, id recordID, f semantic.Finalization, live bson.E) (bool, error) {
	attemptIs := func(status semantic.IdempotencyStatus) bson.D {
		return bson.D{
			{Key: "_id", Value: id.document},
			{Key: "attempt_id", Value: id.attempt},
			{Key: "status", Value: string(status)},
			live,
		}
	}
	update := bson.D{
		{Key: "$set", Value: bson.D{{Key: "status", Value: string(f.Status)}, {Key: "metadata", Value: pairs(f.Metadata)}}},
		{Key: "$currentDate", Value: bson.D{{Key: "updated_at", Value: true}}},
	}
	var res *mongo.UpdateResult
	err := write(ctx, func() (err error) {
		res, err = c.UpdateOne(ctx, attemptIs(semantic.StatusPending), update)
		return err
	})
	if err != nil || res.MatchedCount == 1 {
		return err == nil, err
	}
	err = c.FindOne(ctx, attemptIs(f.Status), options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	return err == nil, err
}

// contended is the error of an acquire that met a changed document every time.
func contended(cause error) error {
	if cause != nil {
		return fmt.Errorf("the record changed %d times under the acquire: %w", replacements, cause)
	}
	return fmt.Errorf("the record changed %d times under the acquire", replacements)
}
