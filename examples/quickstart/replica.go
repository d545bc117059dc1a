package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// service is what the three replicas have in common beside the servers.
type service struct {
	domain  string // new for every run, so that runs on real servers do not meet
	records *recordFile
	ledger  *ledger
	board   *tickBoard
	queued  *idSet

	killAfter int64 // lines scanned before the scanning replica dies; 0: never
	scanned   atomic.Int64
	killed    atomic.Pointer[replica]
}

// replica is one running copy of the service: an fx app with connections of its own.
type replica struct {
	name    string
	service *service
	net     *network
	app     *fx.App
}

func newReplica(s *service, b *backends, name string) *replica {
	r := &replica{name: name, service: s, net: &network{conns: map[net.Conn]struct{}{}}}
	config := b.config
	config.InstanceID = name
	config.Redis.Dial = r.net.dial
	config.SQS.API = &queue{API: b.api, net: r.net, accepted: s.queued}
	config.SQS.PollWait = time.Second
	config.Cron.OnRun = func(record cronfx.RunRecord) {
		if !r.net.dead() { // a dead process reports nothing
			s.board.record(record)
		}
	}

	options := []fx.Option{
		coordfx.Module,
		fx.Supply(config, r),
		fx.Provide(newLogger),
		cronfx.Provide(newPendingMediaJob),
		sqsfanout.Provide(newMediaConsumer),
		fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
	}
	if b.log != nil {
		options = append(options, fx.Replace(fx.Annotate(b.log(), fx.As(new(semantic.IdempotencyLog)))))
	}
	r.app = fx.New(options...)
	return r
}

// newLogger writes warnings to stderr, as long as the replica lives.
func newLogger(r *replica) *zap.Logger {
	level := zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= zapcore.WarnLevel && !r.net.dead() })
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	core := testkit.RecordSignals(zapcore.NewCore(encoder, zapcore.Lock(stderr{}), level))
	return zap.New(core).With(zap.String("replica", r.name))
}

// newPendingMediaJob is the cron job: on every replica, and on one of them per tick.
func newPendingMediaJob(r *replica) cronfx.FanoutJob {
	s := r.service
	return cronfx.FanoutJob{
		Name:     "pending-media",
		Schedule: "*/2 * * * * *",
		Domain:   s.domain,
		Policies: cronfx.Policies{LeaseTTL: 3 * time.Second}, // how soon after a crash a tick runs again
		Scan: func(ctx context.Context, _ cronfx.Tick) semantic.Records {
			return s.records.pending(ctx, s.ledger.has, func() error {
				if s.killAfter > 0 && s.scanned.Add(1) == s.killAfter {
					s.killed.Store(r)
					r.net.kill()
				}
				if r.net.dead() {
					return errCut
				}
				return nil
			})
		},
	}
}

// newMediaConsumer handles one attachment at a time for each free worker.
func newMediaConsumer(r *replica) sqsfanout.Consumer {
	return sqsfanout.Consumer{
		Name:       "media",
		Domain:     r.service.domain,
		Visibility: 5 * time.Second,
		Handle: func(_ context.Context, record semantic.FanoutRecord) error {
			if r.net.dead() {
				return errCut
			}
			return r.service.ledger.handle(record)
		},
	}
}
