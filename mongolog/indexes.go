package mongolog

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The names under which the log makes its indexes.
const (
	identityIndex = "organization_id_1_domain_1_idempotency_key_1"
	expiryIndex   = "expires_at_1"
)

const keysText = "(organization_id, domain, idempotency_key)"

func identityKeys() bson.D {
	return bson.D{{Key: "organization_id", Value: 1}, {Key: "domain", Value: 1}, {Key: "idempotency_key", Value: 1}}
}

func expiryKeys() bson.D { return bson.D{{Key: "expires_at", Value: 1}} }

// index is one index as the server lists it.
type index struct {
	Name               string   `bson:"name"`
	Keys               bson.Raw `bson:"key"`
	Unique             bool     `bson:"unique"`
	Sparse             bool     `bson:"sparse"`
	Hidden             bool     `bson:"hidden"`
	PrepareUnique      bool     `bson:"prepareUnique"`
	PartialFilter      bson.Raw `bson:"partialFilterExpression"`
	Collation          bson.Raw `bson:"collation"`
	ExpireAfterSeconds any      `bson:"expireAfterSeconds"`
}

// ensureIndexes checks the collection's indexes and makes the missing ones if it may.
// It refuses what would break a promise. noTTL is told why expired documents will not
// be deleted.
func ensureIndexes(ctx context.Context, c *mongo.Collection, mayMake bool, noTTL func(error)) error {
	existing, err := listIndexes(ctx, c)
	if err != nil {
		return err
	}
	unique, ttl, err := checkIndexes(c.Name(), existing)
	if err != nil {
		return err
	}
	if !unique {
		if !mayMake {
			return fmt.Errorf("collection %q has no unique index over %s: make it, or let the log do it (SkipIndexCreation)", c.Name(), keysText)
		}
		if err := createIndex(ctx, c, identityKeys(), options.Index().SetName(identityIndex).SetUnique(true)); err != nil {
			return fmt.Errorf("making the unique index of collection %q: %w", c.Name(), err)
		}
		// What the server made is what counts: it inherits the collection's collation.
		if existing, err = listIndexes(ctx, c); err != nil {
			return err
		}
		if unique, ttl, err = checkIndexes(c.Name(), existing); err != nil {
			return err
		}
		if !unique {
			return fmt.Errorf("collection %q has no unique index although the server made one", c.Name())
		}
	}
	switch {
	case ttl:
	case !mayMake:
		noTTL(errors.New("there is no TTL index over expires_at, and SkipIndexCreation is set"))
	default:
		err := createIndex(ctx, c, expiryKeys(), options.Index().SetName(expiryIndex).SetExpireAfterSeconds(0))
		var reply mongo.ServerError
		if errors.As(err, &reply) && !reply.HasErrorLabel("NetworkError") {
			noTTL(err)
		} else if err != nil {
			return fmt.Errorf("making the TTL index of collection %q: %w", c.Name(), err)
		}
	}
	return nil
}

// checkIndexes tells which of the log's indexes there are, or which index forbids the
// log to use the collection.
func checkIndexes(collection string, existing []index) (unique, ttl bool, err error) {
	refuse := func(i index, why string) error {
		return fmt.Errorf("index %q of collection %q %s: drop it or give the log another collection", i.Name, collection, why)
	}
	for _, i := range existing {
		ours, expiry := sameKeys(i.Keys, identityKeys()), sameKeys(i.Keys, expiryKeys())
		switch {
		case ours && !i.Unique:
			return false, false, refuse(i, "is over the log's identity and not unique")
		case ours && (i.Sparse || i.PartialFilter != nil):
			return false, false, refuse(i, "is over the log's identity and leaves documents out")
		case ours && i.Collation != nil:
			return false, false, refuse(i, "compares the log's identity by a collation, so that different keys can be equal")
		case ours && (i.Hidden || i.PrepareUnique):
			return false, false, refuse(i, "is over the log's identity and hidden or still being made unique")
		case ours:
			unique = true
		case i.Unique && !isID(i.Keys):
			return false, false, refuse(i, "is unique over other fields than the log's identity and would refuse records that are no duplicates")
		case i.Name == identityIndex:
			return false, false, refuse(i, "has the name of the log's unique index and other fields")
		case i.ExpireAfterSeconds != nil && !expiry:
			return false, false, refuse(i, "would delete records before they expire")
		case expiry && i.ExpireAfterSeconds != nil:
			ttl = true
		case i.Name == expiryIndex && !expiry:
			return false, false, refuse(i, "has the name of the log's TTL index and other fields")
		}
	}
	return unique, ttl, nil
}

// listIndexes returns no index for a collection that does not exist.
func listIndexes(ctx context.Context, c *mongo.Collection) ([]index, error) {
	var found []index
	cursor, err := c.Indexes().List(ctx)
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	var reply mongo.ServerError
	if errors.As(err, &reply) && reply.HasErrorCode(26) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the indexes of collection %q: %w", c.Name(), err)
	}
	return found, nil
}

func createIndex(ctx context.Context, c *mongo.Collection, keys bson.D, o *options.IndexOptionsBuilder) error {
	_, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: o})
	return err
}

// sameKeys compares an index's fields with want: names, order and direction.
func sameKeys(got bson.Raw, want bson.D) bool {
	elements, err := got.Elements()
	if err != nil || len(elements) != len(want) {
		return false
	}
	for i, e := range elements {
		direction, ok := e.Value().AsInt64OK()
		if e.Key() != want[i].Key || !ok || direction != 1 {
			return false
		}
	}
	return true
}

func isID(keys bson.Raw) bool { return sameKeys(keys, bson.D{{Key: "_id", Value: 1}}) }
