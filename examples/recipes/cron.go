package recipes

import (
	"context"
	"time"

	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
)

// Media is a service with attachments that need work.
type Media struct {
	pending func(ctx context.Context) semantic.Records
	resize  func(ctx context.Context, organization, id string) error
}

// newCleanup is a job that one replica runs each night.
func newCleanup(log *zap.Logger) cronfx.Job {
	return cronfx.Job{
		Name: "cleanup", Schedule: "30 2 * * *", TimeZone: "Europe/Berlin",
		Policies: cronfx.Policies{Timeout: time.Hour},
		Run: func(ctx context.Context, tick cronfx.Tick) error {
			log.Info("cleaning up", zap.Time("scheduled", tick.Instant))
			return ctx.Err()
		},
	}
}

// newPendingMedia scans each minute on one replica and queues what it finds.
func newPendingMedia(media *Media) cronfx.FanoutJob {
	return cronfx.FanoutJob{
		Name: "pending-media", Schedule: "* * * * *", Domain: "media",
		Scan: func(ctx context.Context, _ cronfx.Tick) semantic.Records { return media.pending(ctx) },
	}
}

// newMediaConsumer handles each record once, on whichever replica is free.
func newMediaConsumer(media *Media) sqsfanout.Consumer {
	return sqsfanout.Consumer{
		Domain: "media", Concurrency: 20,
		Handle: func(ctx context.Context, r semantic.FanoutRecord) error {
			return media.resize(ctx, r.OrganizationID, r.RecordID)
		},
	}
}

// jobs are what a service adds to its app.
func jobs() fx.Option {
	return fx.Options(
		cronfx.Provide(newCleanup),
		cronfx.Provide(newPendingMedia),
		sqsfanout.Provide(newMediaConsumer),
	)
}

// Options are the whole app.
func Options(media *Media) fx.Option {
	return fx.Options(
		coordfx.Module,
		fx.Provide(coordfx.ConfigFromEnv, zap.NewProduction),
		fx.Supply(media),
		jobs(),
	)
}

// Rows streams rows of a query as records. The version is what makes a later wish to
// handle the same record another one.
func Rows(next func() (id string, updated time.Time, ok bool, err error)) semantic.Records {
	return func(yield func(semantic.FanoutRecord, error) bool) {
		for {
			id, updated, ok, err := next()
			if !ok && err == nil {
				return
			}
			record := semantic.FanoutRecord{OrganizationID: "acme", RecordID: id, Version: updated.UTC().Format(time.RFC3339Nano)}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}
