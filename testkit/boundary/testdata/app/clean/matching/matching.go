// Package matching has the shape of one service of a workflow engine: a module of
// provider functions, parameter objects, clients of its own RPC services that are called
// raw, and lifetime hooks that run a daemon.
package matching

import (
	"context"

	"github.com/wrkbelt/coord/semantic"
	"go.uber.org/fx"
)

type (
	RPCClient interface {
		Poll(ctx context.Context, queue string) ([]byte, error)
	}
	MatchingRawClient RPCClient
	HistoryRawClient  RPCClient
	Resolver          interface {
		Lookup(key string) (string, error)
	}
	Monitor interface {
		GetResolver(service string) (Resolver, error)
	}
	RPSFunc func() float64

	Config struct {
		RPS        func() int
		Namespaces map[string]int
	}

	HandlerParams struct {
		fx.In

		Config   *Config
		History  HistoryRawClient
		Matching MatchingRawClient
		Resolver Resolver
		Lock     semantic.DistributedLock
		Limiter  semantic.RateLimiter
		Log      semantic.IdempotencyLog `optional:"true"`
		Extra    []Interceptor           `group:"interceptors"`
	}

	Interceptor interface {
		Intercept(ctx context.Context, next func(context.Context) error) error
	}
	Handler struct{ params HandlerParams }
	Service struct{ handler *Handler }
)

var Module = fx.Options(
	fx.Provide(NewConfig),
	fx.Provide(RateProvider),
	fx.Provide(fx.Annotate(LimitInterceptor, fx.ResultTags(`group:"interceptors"`))),
	fx.Provide(func(m Monitor) (Resolver, error) { return m.GetResolver("matching") }),
	fx.Provide(HandlerProvider, NewService),
	fx.Decorate(func(c *Config) *Config { return c }),
	fx.Invoke(LifetimeHooks),
)

func NewConfig() *Config                       { return &Config{} }
func RateProvider(c *Config) RPSFunc           { return func() float64 { return float64(c.RPS()) } }
func HandlerProvider(p HandlerParams) *Handler { return &Handler{p} }
func NewService(h *Handler) *Service           { return &Service{h} }
func (s *Service) Start()                      {}
func (s *Service) Stop()                       {}

func LimitInterceptor(limiter semantic.RateLimiter, rate RPSFunc) Interceptor {
	return limit{limiter}
}

type limit struct{ limiter semantic.RateLimiter }

func (l limit) Intercept(ctx context.Context, next func(context.Context) error) error {
	if ok, err := l.limiter.Allow(ctx, "matching"); !ok {
		return err
	}
	return next(ctx)
}

func LifetimeHooks(lc fx.Lifecycle, stopped chan struct{}, s *Service) {
	lc.Append(fx.Hook{
		OnStart: func(context.Context) error {
			go func(stopped chan<- struct{}) {
				s.Start()
				close(stopped)
			}(stopped)
			return nil
		},
		OnStop: func(context.Context) error {
			s.Stop()
			return nil
		},
	})
}
