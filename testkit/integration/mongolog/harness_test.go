package mongolog_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/mongolog"
	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/integration/ferret"
	"github.com/wrkbelt/coord/testkit/integration/mongoproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// uriVariable names a MongoDB to test on beside FerretDB. Its databases whose names
// begin with coord_test_ are used and dropped.
const uriVariable = "COORD_TEST_MONGODB_URI"

// server is one server under test.
type server struct {
	uri    string
	atomic bool // its findAndModify is
	ttl    bool // it has TTL indexes
}

// onServers runs f on FerretDB and on the MongoDB that the environment names.
func onServers(t *testing.T, f func(t *testing.T, s server)) {
	t.Run("FerretDB", func(t *testing.T) { f(t, server{uri: ferret.StartFerretDB(t)}) })
	uri := os.Getenv(uriVariable)
	if uri == "" {
		t.Logf("not run on MongoDB: %s is not set", uriVariable)
		return
	}
	t.Run("MongoDB", func(t *testing.T) { f(t, server{uri: uri, atomic: true, ttl: true}) })
}

var databases atomic.Int64

// database returns a client beside the log and an empty database, both gone with the
// test.
func (s server) database(t testing.TB) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	if err != nil {
		t.Fatal(err)
	}
	db := client.Database(fmt.Sprintf("coord_test_%d_%d", os.Getpid(), databases.Add(1)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(db.Drop(ctx), client.Disconnect(ctx)); err != nil {
			t.Errorf("dropping the test database: %v", err)
		}
	})
	return db
}

// start starts a log that ends with the test.
func start(t testing.TB, config mongolog.Config) (*mongolog.Log, *observer.ObservedLogs) {
	t.Helper()
	log, logs, err := tryStart(t, config)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return log, logs
}

func tryStart(t testing.TB, config mongolog.Config) (*mongolog.Log, *observer.ObservedLogs, error) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	log, err := mongolog.New(config, observability.New(zap.New(testkit.RecordSignals(core))))
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := log.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return log, logs, log.Start(ctx)
}

// through replaces the URI's host by the proxy's.
func (s server) through(t testing.TB, p *mongoproxy.Proxy) string {
	u, err := url.Parse(s.uri)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Addr()
	q := u.Query()
	q.Set("directConnection", "true") // the members' own addresses would bypass the proxy
	u.RawQuery = q.Encode()
	return u.String()
}

func (s server) host(t testing.TB) string {
	u, err := url.Parse(s.uri)
	if err != nil || strings.Contains(u.Host, ",") {
		t.Fatalf("the fault proxy needs a URI with one host")
	}
	return u.Host
}

// backend is the conformance suite's harness. Long spans pass by moving the stored
// times back, short ones by sleeping.
func backend(t *testing.T, s server) testkit.Backend[semantic.IdempotencyLog] {
	var db *mongo.Database
	var proxy *mongoproxy.Proxy
	var logs []*mongolog.Log
	b := testkit.Backend[semantic.IdempotencyLog]{
		New: func(_ testkit.T, n int) (clients []semantic.IdempotencyLog) {
			db, logs = s.database(t), nil
			proxy = mongoproxy.Start(t, s.host(t))
			for range n {
				l, _ := start(t, mongolog.Config{URI: s.through(t, proxy), Database: db.Name(), TryTimeout: 5 * time.Second})
				logs, clients = append(logs, l), append(clients, l)
			}
			return clients
		},
		Advance: func(d time.Duration) {
			if d < time.Second {
				time.Sleep(d)
				return
			}
			rewind(t, db.Collection(mongolog.DefaultCollection), d)
		},
		Fault: func(_ testkit.T, f testkit.Fault) (heal func()) {
			heal = proxy.Inject(f)
			if f == testkit.FaultDown {
				for _, l := range logs {
					untilNoticed(t, l)
				}
			}
			return heal
		},
		Lacks: []testkit.Need{testkit.NeedStillClock},
	}
	if !s.atomic {
		b.Lacks = append(b.Lacks, testkit.NeedAtomicUpdate)
	}
	return b
}

// rewind moves every stored time back by d.
func rewind(t testing.TB, c *mongo.Collection, d time.Duration) {
	t.Helper()
	cursor, err := c.Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var docs []bson.M
	if err := cursor.All(t.Context(), &docs); err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		set := bson.D{}
		for _, field := range []string{"attempted_at", "created_at", "updated_at", "expires_at"} {
			set = append(set, bson.E{Key: field, Value: doc[field].(bson.DateTime).Time().Add(-d)})
		}
		if _, err := c.UpdateByID(t.Context(), doc["_id"], bson.D{{Key: "$set", Value: set}}); err != nil {
			t.Fatal(err)
		}
	}
}

// untilNoticed waits until the log's pool knows that its connections are gone: a call
// on one that was just cut is rightly unknown.
func untilNoticed(t testing.TB, l *mongolog.Log) {
	t.Helper()
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := l.Finalize(ctx, "000000000000000000000000.AAAAAAAAAAAAAAAAAAAAAAAAAA", semantic.Finalization{Status: semantic.StatusFailed})
		cancel()
		if errors.Is(err, semantic.ErrUnavailable) {
			return
		}
	}
	t.Fatal("the outage is not noticed")
}
