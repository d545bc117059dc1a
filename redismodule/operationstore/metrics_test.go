package operationstore

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func TestTheGatesStatisticsAreMetrics(t *testing.T) {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	server := testkit.StartRedis(t)
	o, err := Open(Config{Redis: redismodule.Config{URL: server.URL()}, MeterProvider: provider}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close(context.Background()) }()
	if _, err := o.ReadStatus(t.Context(), operation.Identity{Tenant: "a", Operation: "b", IdempotencyKey: "c", Fingerprint: strings.Repeat("0", 64), DurableID: "d"}); err != nil {
		t.Fatal(err)
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				values[m.Name] = data.DataPoints[0].Value
			case metricdata.Gauge[int64]:
				values[m.Name] = data.DataPoints[0].Value
			}
		}
	}
	for _, f := range figures {
		if _, ok := values[f.Name]; !ok {
			t.Errorf("%s was not collected: %v", f.Name, values)
		}
	}
	if want := int64(o.Stats().Dispatched); want == 0 || values["coord.operation.gate.dispatched"] != want {
		t.Errorf("dispatched %d, want %d", values["coord.operation.gate.dispatched"], want)
	}
}
