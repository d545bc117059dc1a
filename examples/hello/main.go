package main

import (
	"context"

	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/cronfx"
)

func main() {
	fx.New(coordfx.Module, fx.Provide(coordfx.ConfigFromEnv, zap.NewProduction), cronfx.Provide(newReport)).Run()
}

func newReport(log *zap.Logger) cronfx.Job {
	run := func(context.Context, cronfx.Tick) error { log.Info("on one replica of all"); return nil }
	return cronfx.Job{Name: "report", Schedule: "@every 10s", Run: run}
}
