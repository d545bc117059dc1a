package sqsfanout_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
)

// hosted wires a host as the module of a service does.
func hosted(config sqsfanout.Config) fx.Option {
	return fx.Options(
		fx.NopLogger,
		fx.Invoke(func(p sqsfanout.HostParams, lifecycle fx.Lifecycle) error {
			h, err := p.Host(config, nil)
			if err == nil {
				sqsfanout.Register(lifecycle, h)
			}
			return err
		}),
	)
}

func TestModule_service_without_consumers_needs_no_log_and_no_queue(t *testing.T) {
	asked := false
	app := fxtest.New(t, hosted(sqsfanout.Config{}), fx.Provide(func() (semantic.IdempotencyLog, error) {
		asked = true
		return nil, errors.New("no MongoDB is configured")
	}))
	app.RequireStart().RequireStop()
	if asked {
		t.Errorf("the log was made")
	}
}

func TestModule_consumers_get_their_dependencies_and_run(t *testing.T) {
	r := newRig(t)
	r.config.Clock = nil
	r.config.PollWait = 1e9
	type service struct{ done *journal }
	var done journal
	app := fxtest.New(t, hosted(r.config),
		fx.Provide(
			func() *service { return &service{&done} },
			func() semantic.IdempotencyLog { return r.log.Client() },
		),
		sqsfanout.Provide(func(s *service) sqsfanout.Consumer {
			return consumer(func(_ context.Context, rec semantic.FanoutRecord) error { s.done.add(rec.RecordID); return nil })
		}),
		sqsfanout.Provide(func(*service) (sqsfanout.Consumer, error) {
			return sqsfanout.Consumer{Domain: "other", Handle: func(context.Context, semantic.FanoutRecord) error { return nil }}, nil
		}),
	)
	app.RequireStart()
	r.enqueue(record("a"))
	r.eventually("handled", func() bool { return done.count("a") == 1 && r.empty() })
	// The fake's clock stands still, so a receive under way is woken by a message.
	stopped := make(chan struct{})
	go func() { defer close(stopped); app.RequireStop() }()
	for {
		select {
		case <-stopped:
			return
		default:
			r.clock.Advance(1e9)
		}
	}
}

func TestModule_consumer_without_a_log_says_so(t *testing.T) {
	app := fx.New(hosted(sqsfanout.Config{}), sqsfanout.Provide(func() sqsfanout.Consumer {
		return consumer(func(context.Context, semantic.FanoutRecord) error { return nil })
	}))
	if err := app.Err(); err == nil {
		t.Errorf("a consumer without an idempotency log in the graph was accepted")
	}
}
