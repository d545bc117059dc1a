package mongolog_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/integration/mongoproxy"
)

var request = semantic.IdempotencyRequest{OrganizationID: "org-1", Domain: "WEBHOOK", Key: "evt-1", TTLDays: 2, Fingerprint: "f1"}

func ascending(fields ...string) bson.D {
	keys := bson.D{}
	for _, f := range fields {
		keys = append(keys, bson.E{Key: f, Value: 1})
	}
	return keys
}

// mongoose#7183, go-mgo/mgo#313: a missing index is made, one that is not unique
// refuses the start.
func TestTheUniqueIndexIsMadeOrTheStartRefused(t *testing.T) {
	identity := ascending("organization_id", "domain", "idempotency_key")
	onServers(t, func(t *testing.T, s server) {
		t.Run("made", func(t *testing.T) {
			db := s.database(t)
			start(t, mongolog.Config{URI: s.uri, Database: db.Name()})
			specs, err := db.Collection(mongolog.DefaultCollection).Indexes().ListSpecifications(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var unique, ttl int
			for _, i := range specs {
				keys, _ := bson.Marshal(identity)
				var got, want bson.D
				_ = bson.Unmarshal(i.KeysDocument, &got)
				_ = bson.Unmarshal(keys, &want)
				if slices.EqualFunc(got, want, func(a, b bson.E) bool { return a.Key == b.Key }) && i.Unique != nil && *i.Unique {
					unique++
				}
				if i.ExpireAfterSeconds != nil && *i.ExpireAfterSeconds == 0 && got[0].Key == "expires_at" {
					ttl++
				}
			}
			if unique != 1 || (ttl == 1) != s.ttl {
				t.Errorf("%d unique and %d TTL indexes", unique, ttl)
			}
			start(t, mongolog.Config{URI: s.uri, Database: db.Name(), SkipIndexCreation: true}) // finds them
		})
		t.Run("refused", func(t *testing.T) {
			db := s.database(t)
			if _, err := db.Collection(mongolog.DefaultCollection).Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: identity}); err != nil {
				t.Fatal(err)
			}
			_, _, err := tryStart(t, mongolog.Config{URI: s.uri, Database: db.Name()})
			if err == nil || !strings.Contains(err.Error(), "not unique") {
				t.Errorf("start: %v, want a refusal", err)
			}
		})
		t.Run("not to be made", func(t *testing.T) {
			_, _, err := tryStart(t, mongolog.Config{URI: s.uri, Database: s.database(t).Name(), SkipIndexCreation: true})
			if err == nil || !strings.Contains(err.Error(), "no unique index") {
				t.Errorf("start: %v, want a refusal", err)
			}
		})
		t.Run("duplicates in the collection", func(t *testing.T) {
			db := s.database(t)
			twin := bson.D{{Key: "organization_id", Value: "o"}, {Key: "domain", Value: "d"}, {Key: "idempotency_key", Value: "k"}}
			for range 2 {
				if _, err := db.Collection(mongolog.DefaultCollection).InsertOne(t.Context(), twin); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err := tryStart(t, mongolog.Config{URI: s.uri, Database: db.Name()}); err == nil || !strings.Contains(err.Error(), "unique index") {
				t.Errorf("start: %v, want an error about the unique index", err)
			}
		})
	})
}

func TestManyReplicasMayStartAtOnce(t *testing.T) {
	onServers(t, func(t *testing.T, s server) {
		db := s.database(t)
		ended := make(chan error)
		for range 8 {
			go func() {
				_, _, err := tryStart(t, mongolog.Config{URI: s.uri, Database: db.Name()})
				ended <- err
			}()
		}
		for range 8 {
			if err := <-ended; err != nil {
				t.Errorf("start: %v", err)
			}
		}
	})
}

func TestAServerWithoutTTLIndexesIsSaidOnce(t *testing.T) {
	onServers(t, func(t *testing.T, s server) {
		_, logs := start(t, mongolog.Config{URI: s.uri, Database: s.database(t).Name()})
		want := 1
		if s.ttl {
			want = 0
		}
		if got := logs.FilterField(zap.String("event", string(observability.LogTTLUnsupported))).Len(); got != want {
			t.Errorf("%d signals, want %d", got, want)
		}
	})
}

func TestDocumentsAreAsDocumented(t *testing.T) {
	onServers(t, func(t *testing.T, s server) {
		db := s.database(t)
		log, _ := start(t, mongolog.Config{URI: s.uri, Database: db.Name()})
		r := log.TryAcquire(t.Context(), request).Record
		if err := log.Finalize(t.Context(), r.ID, semantic.Finalization{Status: semantic.StatusFailed, Metadata: map[string]string{"b.c": "2", "$a": "1"}}); err != nil {
			t.Fatal(err)
		}
		var doc bson.M
		if err := db.Collection(mongolog.DefaultCollection).FindOne(t.Context(), bson.D{}, options.FindOne()).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		want := []string{"_id", "attempt", "attempt_id", "attempted_at", "created_at", "domain", "expires_at", "fingerprint", "idempotency_key", "metadata", "organization_id", "status", "taken_over", "updated_at"}
		if got := slices.Sorted(maps.Keys(doc)); !slices.Equal(got, want) {
			t.Errorf("fields %v, want %v", got, want)
		}
		id, attempt, _ := strings.Cut(string(r.ID), ".")
		if doc["_id"].(bson.ObjectID).Hex() != id || doc["attempt_id"] != attempt || doc["status"] != "FAILED" || doc["attempt"] != int32(1) && doc["attempt"] != int64(1) {
			t.Errorf("document %v of record %+v", doc, r)
		}
		metadata, _ := bson.Marshal(bson.D{{Key: "m", Value: doc["metadata"]}})
		wantMetadata, _ := bson.Marshal(bson.D{{Key: "m", Value: bson.A{
			bson.D{{Key: "k", Value: "$a"}, {Key: "v", Value: "1"}}, bson.D{{Key: "k", Value: "b.c"}, {Key: "v", Value: "2"}}}}})
		if string(metadata) != string(wantMetadata) {
			t.Errorf("metadata %v, want pairs in the order of their keys", doc["metadata"])
		}
		if drift := time.Since(doc["attempted_at"].(bson.DateTime).Time()); s.atomic == false && (drift < 0 || drift > time.Minute) {
			t.Errorf("attempted %v ago by the server's clock, which is this machine's", drift)
		}
	})
}

// spring-modulith#926 and dbos-transact-py#544: several nodes with the same work.
func TestManyReplicasRunAnEffectOnce(t *testing.T) {
	onServers(t, func(t *testing.T, s server) {
		db := s.database(t)
		var logs []*mongolog.Log
		for range 4 {
			l, _ := start(t, mongolog.Config{URI: s.uri, Database: db.Name()})
			logs = append(logs, l)
		}
		for _, key := range []string{"evt-1", "evt-2", "evt-3"} {
			req := request
			req.Key = key
			var runs atomic.Int32
			ended := make(chan error)
			for i := range 32 {
				go func() {
					_, err := semantic.RunOnce(t.Context(), logs[i%len(logs)], req, func(context.Context, semantic.IdempotencyRecord) (map[string]string, error) {
						runs.Add(1)
						return nil, nil
					})
					ended <- err
				}()
			}
			for range 32 {
				if err := <-ended; err != nil {
					t.Errorf("run: %v", err)
				}
			}
			if runs.Load() != 1 {
				t.Errorf("the effect of %s ran %d times, want once", key, runs.Load())
			}
		}
	})
}

// go-mgo/mgo#313, beanie PR#1353: the rival acts exactly between two steps of a
// takeover. On a server whose findAndModify is not atomic this is what can be shown:
// a rival that is done before the replacement is seen.
func TestARivalBetweenLookAndTakeoverIsSeen(t *testing.T) {
	onServers(t, func(t *testing.T, s server) {
		db := s.database(t)
		proxy := mongoproxy.Start(t, s.host(t))
		mine, _ := start(t, mongolog.Config{URI: s.through(t, proxy), Database: db.Name()})
		rival, _ := start(t, mongolog.Config{URI: s.uri, Database: db.Name()})
		first := mine.TryAcquire(t.Context(), request)
		rewind(t, db.Collection(mongolog.DefaultCollection), time.Hour)
		takeover := request
		takeover.TakeOverPendingAfter = time.Minute

		var theirs semantic.AcquireResult
		var once atomic.Bool
		proxy.Before(func(command string) {
			if command == "findAndModify" && once.CompareAndSwap(false, true) {
				theirs = rival.TryAcquire(t.Context(), takeover)
			}
		})
		res := mine.TryAcquire(t.Context(), takeover)
		if !theirs.Acquired || !theirs.Record.TakenOver || res.Acquired || res.Record.ID != theirs.Record.ID {
			t.Errorf("rival %+v, then %+v, want the rival to win and a duplicate of it", theirs, res)
		}
		if err := mine.Finalize(t.Context(), first.Record.ID, semantic.Finalization{Status: semantic.StatusCompleted}); !errors.Is(err, semantic.ErrSuperseded) {
			t.Errorf("the zombie's finalize: %v, want ErrSuperseded", err)
		}
	})
}

// Every command of every call loses its reply once; the answer is the same.
func TestALostReplyOfAnyCommandIsResolved(t *testing.T) {
	onServers(t, func(t *testing.T, s server) {
		db := s.database(t)
		proxy := mongoproxy.Start(t, s.host(t))
		log, _ := start(t, mongolog.Config{URI: s.through(t, proxy), Database: db.Name()})
		req := request
		req.RetryFailed = true
		for _, command := range []string{"insert", "find", "findAndModify", "update"} {
			if _, err := db.Collection(mongolog.DefaultCollection).DeleteMany(t.Context(), bson.D{}); err != nil {
				t.Fatal(err)
			}
			lost := 0
			lose := func() { // the next command of that name, if there is one
				var once atomic.Bool
				proxy.Before(func(name string) {
					if name == command && once.CompareAndSwap(false, true) {
						lost++
						proxy.Inject(testkit.FaultLoseReply)
					}
				})
			}
			lose()
			first := log.TryAcquire(t.Context(), req)
			if !first.Acquired || first.Record.Attempt != 1 {
				t.Errorf("%s lost: acquire %+v", command, first)
			}
			lose()
			if res := log.TryAcquire(t.Context(), req); res.Reason != semantic.ReasonDuplicate || res.Record.ID != first.Record.ID {
				t.Errorf("%s lost: duplicate %+v", command, res)
			}
			for range 2 {
				lose()
				if err := log.Finalize(t.Context(), first.Record.ID, semantic.Finalization{Status: semantic.StatusFailed}); err != nil {
					t.Errorf("%s lost: finalize %v", command, err)
				}
			}
			lose()
			if res := log.TryAcquire(t.Context(), req); !res.Acquired || res.Record.Attempt != 2 {
				t.Errorf("%s lost: retry %+v", command, res)
			}
			proxy.Before(nil)
			if lost == 0 && (command != "insert" || !s.atomic) {
				t.Errorf("no %s was sent, so none was lost", command)
			}
		}
	})
}
