package mongolog_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/wrkbelt/coord/mongolog"
)

func TestFenceUpdateAddsToTheSetOfTheUpdateAndLeavesItUnchanged(t *testing.T) {
	update := bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "$set", Value: bson.D{{Key: "state", Value: "paid"}}}}
	before := fmt.Sprint(update)
	got := mongolog.FenceUpdate(7, update)
	want := bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "$set", Value: bson.D{{Key: "state", Value: "paid"}, {Key: mongolog.FenceField, Value: int64(7)}}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("update %v, want %v", got, want)
	}
	if fmt.Sprint(update) != before {
		t.Errorf("the caller's update was changed to %v", update)
	}
	if alone := mongolog.FenceUpdate(7, nil); fmt.Sprint(alone) != fmt.Sprint(bson.D{{Key: "$set", Value: bson.D{{Key: mongolog.FenceField, Value: int64(7)}}}}) {
		t.Errorf("update without $set: %v", alone)
	}
}
