package operationstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/operationstore"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/telemetry"
)

func TestWhatACoordinatorMeasures(t *testing.T) {
	server, recorder := testkit.StartRedis(t), telemetry.New()
	o, err := operationstore.Open(operationstore.Config{Redis: redismodule.Config{URL: server.URL()}, Telemetry: recorder.Telemetry()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := operation.Identity{
		Tenant: "acme", Operation: "charge", IdempotencyKey: "k1", Fingerprint: strings.Repeat("0", 64), DurableID: "payment-1",
	}
	ctx := t.Context()
	_, _ = o.ReadStatus(ctx, id)
	begun, err := o.Begin(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = o.Begin(ctx, id)
	_, _ = o.Renew(ctx, begun.Lease)
	_, _ = o.Complete(ctx, begun.Lease, "ref-1")
	_, _ = o.Abandon(ctx, begun.Lease)
	_, _ = o.Begin(ctx, operation.Identity{})
	server.Must("CONFIG", "SET", "min-replicas-to-write", "1")
	other := id
	other.IdempotencyKey = "k2"
	_, _ = o.Begin(ctx, other)
	server.Must("CONFIG", "SET", "min-replicas-to-write", "0")
	if err := o.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, _ = o.ReadStatus(ctx, id)

	var metrics, spans []string
	for _, w := range []string{
		"read_status missing", "begin acquired", "begin in_progress", "renew renewed", "complete completed", "abandon lost",
		"begin invalid", "begin rejected", "read_status closed",
	} {
		metrics = append(metrics, "coord.operation.calls "+w+" 1", "coord.operation.duration "+w+" 1")
		status := "Unset"
		if strings.HasSuffix(w, "rejected") || strings.HasSuffix(w, "lost") {
			status = "Error"
		}
		spans = append(spans, "coord.operation "+strings.Replace(w, " ", ": ", 1)+" "+status)
	}
	recorder.Expect(t, metrics...)
	recorder.ExpectSpans(t, spans...)
}

func TestABrokenProviderFailsTheConstruction(t *testing.T) {
	_, err := operationstore.Open(operationstore.Config{
		Redis: redismodule.Config{URL: "redis://localhost:6379"}, Telemetry: observability.Telemetry{Meter: telemetry.Broken{}},
	}, nil)
	if err == nil || !strings.Contains(err.Error(), "operations Telemetry.Meter: not usable") {
		t.Errorf("error %v", err)
	}
}
