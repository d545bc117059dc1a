package mongolog

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/wrkbelt/coord/semantic"
)

// FenceField is the field in which [FenceFilter] and [FenceUpdate] keep the greatest
// fence that a document has seen.
const FenceField = "coord_fence"

// FenceFilter extends the filter of an update so that it matches only while no later
// holder of the lock has written the document: a paused holder that wakes up after its
// lock went to another matches nothing, and its stale write is refused by the resource
// itself. Use it with [FenceUpdate] in one UpdateOne or FindOneAndUpdate, without upsert:
//
//	fence, _ := semantic.FenceFromContext(ctx)
//	result, err := orders.UpdateOne(ctx,
//		mongolog.FenceFilter(fence, bson.D{{"_id", id}}),
//		mongolog.FenceUpdate(fence, bson.D{{"$set", bson.D{{"state", "paid"}}}}))
//	if err == nil && result.MatchedCount == 0 {
//		// the document is gone, or a later holder has written it: stop working
//	}
//
// The holder of a fence may write the same document any number of times. A document
// without the field is taken as never written. No I/O.
func FenceFilter(fence semantic.Fence, filter bson.D) bson.D {
	guard := bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: FenceField, Value: bson.D{{Key: "$exists", Value: false}}}},
		bson.D{{Key: FenceField, Value: bson.D{{Key: "$lte", Value: int64(fence)}}}},
	}}}
	return bson.D{{Key: "$and", Value: bson.A{filter, guard}}}
}

// FenceUpdate extends an update so that the document remembers fence; see [FenceFilter].
// It adds to the $set of update, which it leaves unchanged, or makes one.
func FenceUpdate(fence semantic.Fence, update bson.D) bson.D {
	out := make(bson.D, 0, len(update)+1)
	mark := bson.E{Key: FenceField, Value: int64(fence)}
	marked := false
	for _, e := range update {
		if set, ok := e.Value.(bson.D); ok && e.Key == "$set" {
			e.Value = append(append(bson.D{}, set...), mark)
			marked = true
		}
		out = append(out, e)
	}
	if !marked {
		out = append(out, bson.E{Key: "$set", Value: bson.D{mark}})
	}
	return out
}
