package coordfx_test

import (
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/operationstore"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func TestOperationsProvidesTheCoordinatorBesideTheSevenTypes(t *testing.T) {
	server := testkit.StartRedis(t)
	var coordinator operation.Coordinator
	app := fxtest.New(t, fx.NopLogger, coordfx.Module, coordfx.Operations,
		fx.Supply(coordfx.Config{}, zap.NewNop(), operationstore.Config{Redis: redismodule.Config{URL: server.URL()}}),
		fx.Populate(&coordinator))
	app.RequireStart()
	defer app.RequireStop()
	got, err := coordinator.Begin(t.Context(), operation.Identity{
		Tenant: "acme", Operation: "charge", IdempotencyKey: "k1",
		Fingerprint: strings.Repeat("0", 64), DurableID: "payment-1",
	})
	if err != nil || got.Outcome != operation.BeginAcquired {
		t.Errorf("begin: %+v, %v", got, err)
	}
}

func TestOperationsNamesASettingThatIsMissing(t *testing.T) {
	var coordinator operation.Coordinator
	err := fx.New(fx.NopLogger, coordfx.Module, coordfx.Operations,
		fx.Supply(coordfx.Config{}, zap.NewNop(), operationstore.Config{}), fx.Populate(&coordinator)).Err()
	if err == nil || !strings.Contains(err.Error(), "URL") {
		t.Errorf("construction without an address: %v", err)
	}
}
