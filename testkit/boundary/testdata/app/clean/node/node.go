// Package node has the shape of a peer-to-peer node: groups of options made from a
// configuration, constructors that return constructors, units that are there or not,
// and option errors.
package node

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/fx"
)

type (
	Config struct {
		Manager  string
		LowWater int
		Grace    time.Duration
		Online   bool
		Key      []byte
	}
	Repo       interface{ Config() (*Config, error) }
	PeerID     string
	PrivateKey []byte
	Host       interface {
		Connect(ctx context.Context, peer PeerID) error
	}
	Exchange interface {
		Fetch(ctx context.Context, id string) ([]byte, error)
	}
	Option[T any] struct {
		Value   T
		Default func() T
	}
	// MetricsCtx outlives the constructors.
	MetricsCtx context.Context

	hostIn struct {
		fx.In

		Repo    Repo
		ID      PeerID
		Options []Option[int] `group:"options"`
	}
	hostOut struct {
		fx.Out

		Host    Host
		Routing Exchange `name:"routing"`
	}
)

func maybeProvide(constructor any, enable bool) fx.Option {
	if enable {
		return fx.Provide(constructor)
	}
	return fx.Options()
}

func ConnectionManager(low int, grace time.Duration) func() (Option[int], error) {
	return func() (Option[int], error) { return Option[int]{Value: low}, nil }
}

func NewHost(mctx MetricsCtx, lc fx.Lifecycle, in hostIn) (out hostOut) {
	ctx, cancel := context.WithCancel(mctx)
	lc.Append(fx.Hook{
		OnStart: func(context.Context) error { go func() { <-ctx.Done() }(); return nil },
		OnStop:  func(context.Context) error { cancel(); return nil },
	})
	return out
}

func Identity(c *Config) fx.Option {
	if len(c.Key) == 0 {
		return fx.Supply(PeerID("ephemeral"))
	}
	return fx.Supply(PeerID("node"), PrivateKey(c.Key))
}

func Online(c *Config) fx.Option {
	var manager fx.Option
	switch c.Manager {
	case "none":
		manager = fx.Options()
	case "", "basic":
		manager = fx.Provide(ConnectionManager(c.LowWater, c.Grace))
	default:
		return fx.Error(fmt.Errorf("unknown connection manager: %q", c.Manager))
	}
	return fx.Options(manager, fx.Provide(NewHost), maybeProvide(func() Exchange { return nil }, c.Online))
}

// New builds the node and fills in what its caller wants of it.
func New(ctx context.Context, c *Config) (Host, error) {
	var node struct {
		fx.In

		Host     Host
		Exchange Exchange `optional:"true"`
	}
	fx.New(
		fx.Provide(func() MetricsCtx { return ctx }),
		Identity(c), Online(c),
		fx.Populate(&node),
	)
	return node.Host, nil
}
