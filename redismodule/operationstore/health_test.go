package operationstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/operationstore"
	"github.com/wrkbelt/coord/testkit"
)

func TestHealthFindsOutThatTheAuthorityIsNoPrimaryAnyMore(t *testing.T) {
	server, other, h := testkit.StartRedis(t), testkit.StartRedis(t), health.New()
	o, err := operationstore.Open(operationstore.Config{Redis: redismodule.Config{URL: server.URL()}, Health: h}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close(context.Background()) }()
	want := func(when string, state health.State) (f health.Finding) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); f.State != state; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v, want %s", when, f, state)
			}
			f, _ = h.Check(t.Context()).Part("operations")
		}
		return f
	}
	want("before the start", health.NotStarted)
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f := want("started", health.OK); f.Pool == nil || f.Pool.Total == 0 {
		t.Errorf("pool %+v", f.Pool)
	}
	host, port, _ := strings.Cut(other.Addr(), ":")
	server.Must("REPLICAOF", host, port)
	if f := want("a replica", health.Failing); f.Cause != "unavailable" {
		t.Errorf("cause %q", f.Cause)
	}
	server.Must("REPLICAOF", "NO", "ONE")
	want("a primary again", health.OK)
	if err := o.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("closed", health.Closed)
}
