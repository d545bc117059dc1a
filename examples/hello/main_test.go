package main

import (
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheReportRuns(t *testing.T) {
	var runner *cronfx.Runner
	app := fxtest.New(t, testkit.Module, fx.Provide(zap.NewNop), cronfx.Provide(newReport), fx.Populate(&runner))
	app.RequireStart()
	defer app.RequireStop()
	record, err := runner.Trigger(t.Context(), "report")
	// The tick that has just passed may be made up for at the start, and still run.
	if err != nil || (record.Outcome != cronfx.OutcomeCompleted && record.Outcome != cronfx.OutcomeSkippedOverlap) {
		t.Errorf("triggered: %+v, %v", record, err)
	}
}
