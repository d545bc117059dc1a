package sqsfanout

import (
	"go.uber.org/fx"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
)

// Provide adds a consumer to the service: constructor is a function whose parameters fx
// injects and that returns a [Consumer], or a Consumer and an error.
//
//	sqsfanout.Provide(func(media *MediaService) sqsfanout.Consumer {
//		return sqsfanout.Consumer{Domain: "media", Handle: media.Process}
//	})
//
// A service with a consumer needs an idempotency log and a queue; one without needs
// neither.
func Provide(constructor any) fx.Option {
	return fx.Options(
		fx.Provide(fx.Annotate(constructor, fx.ResultTags(`group:"coord.consumers"`))),
		// Only here the log becomes a need: without a consumer nobody asks for it.
		fx.Provide(fx.Annotate(
			func(log semantic.IdempotencyLog) semantic.IdempotencyLog { return log },
			fx.ResultTags(`group:"coord.consumer_logs"`),
		)),
	)
}

// HostParams are what [Provide] put into the graph, for the module that wires the host.
type HostParams struct {
	fx.In

	Consumers []Consumer                `group:"coord.consumers"`
	Logs      []semantic.IdempotencyLog `group:"coord.consumer_logs"`
}

// Host makes the host of the service's consumers; see [NewHost].
func (p HostParams) Host(config Config, signals *observability.Signals) (*Host, error) {
	var log semantic.IdempotencyLog
	if len(p.Logs) > 0 {
		log = p.Logs[0] // one for each consumer, all the same
	}
	return NewHost(config, p.Consumers, log, signals)
}

// Register appends the host's start and stop to the service's lifecycle.
func Register(lifecycle fx.Lifecycle, h *Host) {
	lifecycle.Append(fx.Hook{OnStart: h.Start, OnStop: h.Stop})
}
