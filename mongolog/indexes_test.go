package mongolog

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/observability"
)

// keys is an index over ascending fields.
func keys(fields ...string) bson.D {
	k := bson.D{}
	for _, f := range fields {
		k = append(k, bson.E{Key: f, Value: 1})
	}
	return bson.D{{Key: "v", Value: 2}, {Key: "key", Value: k}, {Key: "name", Value: strings.Join(fields, "_1_") + "_1"}}
}

func with(index bson.D, option string, value any) bson.D {
	return append(append(bson.D{}, index...), bson.E{Key: option, Value: value})
}

func named(index bson.D, name string) bson.D {
	return append(bson.D{{Key: "name", Value: name}}, index[:2]...)
}

// mongoose#7183, mgo#313: without the unique index nothing is idempotent, so the log
// refuses to start on anything else.
func TestStartRefusesIndexesThatBreakThePromise(t *testing.T) {
	identity := keys("organization_id", "domain", "idempotency_key")
	unique := with(identity, "unique", true)
	tests := []struct {
		name    string
		indexes []bson.D
		skip    bool
		refused string // part of the message, "" if it starts
	}{
		{"none", nil, false, ""},
		{"ours", []bson.D{unique}, false, ""},
		{"ours under another name", []bson.D{with(named(identity, "by_operator"), "unique", true)}, false, ""},
		{"another that harms nobody", []bson.D{keys("status")}, false, ""},
		{"none, and not to be made", nil, true, "no unique index"},
		{"ours, and not to be made", []bson.D{unique}, true, ""},
		{"not unique", []bson.D{identity}, false, "not unique"},
		{"not unique beside a unique one", []bson.D{unique, named(identity, "again")}, false, "not unique"},
		{"sparse", []bson.D{with(unique, "sparse", true)}, false, "leaves documents out"},
		{"partial", []bson.D{with(unique, "partialFilterExpression", bson.D{{Key: "status", Value: "PENDING"}})}, false, "leaves documents out"},
		{"by a collation", []bson.D{with(unique, "collation", bson.D{{Key: "locale", Value: "en"}, {Key: "strength", Value: 2}})}, false, "collation"},
		{"hidden", []bson.D{with(unique, "hidden", true)}, false, "hidden"},
		{"another order only", []bson.D{with(keys("domain", "organization_id", "idempotency_key"), "unique", true)}, false, "unique over other fields"},
		// MassTransit#3543: unique on the message id alone.
		{"unique over the key alone", []bson.D{unique, with(keys("idempotency_key"), "unique", true)}, false, "unique over other fields"},
		{"our name, other fields", []bson.D{named(keys("status"), identityIndex)}, false, "has the name"},
		{"the TTL index's name, other fields", []bson.D{unique, named(keys("status"), expiryIndex)}, false, "has the name"},
		{"a TTL index over another time", []bson.D{unique, with(keys("created_at"), "expireAfterSeconds", int32(60))}, false, "delete records before they expire"},
		{"a TTL index that is late", []bson.D{unique, with(keys("expires_at"), "expireAfterSeconds", int32(3600))}, false, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := startFakeServer(t, false)
			s.indexes = test.indexes
			l, _ := newLog(t, Config{URI: s.uri(), SkipIndexCreation: test.skip})
			err := l.Start(t.Context())
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("start: %v, want it to start", err)
			case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("start: %v, want a refusal with %q", err, test.refused)
			case test.refused != "" && len(s.sent("createIndexes")) > 0:
				t.Error("an index was made before the refusal")
			}
			if err != nil && !strings.Contains(err.Error(), DefaultCollection) {
				t.Errorf("the error does not name the collection: %v", err)
			}
		})
	}
}

func TestStartMakesTheIndexesOnce(t *testing.T) {
	s := startFakeServer(t, false)
	for range 2 {
		startLog(t, s)
	}
	var made []string
	for _, i := range s.indexes {
		made = append(made, fmt.Sprint(field(i, "key"), field(i, "unique"), field(i, "expireAfterSeconds")))
	}
	want := []string{
		fmt.Sprint(bson.D{{Key: "organization_id", Value: int32(1)}, {Key: "domain", Value: int32(1)}, {Key: "idempotency_key", Value: int32(1)}}, true, nil),
		fmt.Sprint(bson.D{{Key: "expires_at", Value: int32(1)}}, nil, int32(0)),
	}
	if fmt.Sprint(made) != fmt.Sprint(want) {
		t.Errorf("indexes %v, want %v", made, want)
	}
}

func TestACollectionWhoseCollationTheIndexInheritsIsRefused(t *testing.T) {
	s := startFakeServer(t, false)
	s.script = func(command string, doc bson.D) (bson.D, bool) {
		if command == "createIndexes" {
			s.indexes = append(s.indexes, with(with(keys("organization_id", "domain", "idempotency_key"), "unique", true), "collation", bson.D{{Key: "locale", Value: "en"}}))
			return bson.D{{Key: "ok", Value: 1}}, false
		}
		return nil, false
	}
	l, _ := newLog(t, Config{URI: s.uri()})
	if err := l.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "collation") {
		t.Errorf("start: %v, want a refusal that names the collation", err)
	}
}

func TestAServerWithoutTTLIndexesIsSaidAndUsed(t *testing.T) {
	s := startFakeServer(t, true)
	l, logs := startLog(t, s)
	got := logs.TakeAll()
	if len(got) != 1 || got[0].ContextMap()["event"] != string(observability.LogTTLUnsupported) || got[0].ContextMap()["collection"] != DefaultCollection {
		t.Errorf("signals %v, want one %s", got, observability.LogTTLUnsupported)
	}
	if !l.TryAcquire(t.Context(), request).Acquired {
		t.Error("the log does not work")
	}

	s = startFakeServer(t, false)
	s.indexes = []bson.D{with(keys("organization_id", "domain", "idempotency_key"), "unique", true)}
	l, logs = newLog(t, Config{URI: s.uri(), SkipIndexCreation: true})
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if logs.FilterField(zap.String("event", string(observability.LogTTLUnsupported))).Len() != 1 {
		t.Errorf("signals %v, want one %s: nobody made the TTL index", logs.All(), observability.LogTTLUnsupported)
	}
}

func TestTheServersAbilitiesAreFoundOutWithoutAWrite(t *testing.T) {
	onBoth(t, func(t *testing.T, s *fakeServer) {
		l, _ := startLog(t, s)
		if _, full := l.records.(pipelineRecords); full == s.plain {
			t.Errorf("records are %T", l.records)
		}
		if len(s.docs) != 0 {
			t.Errorf("the probe left %v", s.docs)
		}
	})
}

func TestARefusedProbeFailsTheStartInsteadOfGuessing(t *testing.T) {
	for _, code := range []int{13, 10107, 91, 50} {
		s := startFakeServer(t, false)
		s.script = func(command string, _ bson.D) (bson.D, bool) {
			if command == "findAndModify" {
				return errorReply(code), false
			}
			return nil, false
		}
		l, _ := newLog(t, Config{URI: s.uri()})
		if err := l.Start(t.Context()); err == nil {
			t.Errorf("code %d: the log started", code)
		}
	}
}
