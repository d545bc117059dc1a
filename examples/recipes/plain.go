package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
)

// WithoutFx uses the services in a program that has no fx.
func WithoutFx(ctx context.Context, url string, signals *observability.Signals) (err error) {
	services, err := redismodule.Open(redismodule.Config{URL: url}, signals)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, services.Close(context.WithoutCancel(ctx))) }()
	if err := services.Start(ctx); err != nil {
		return err
	}
	claim, err := services.Lock.Acquire(ctx, "demo", 5*time.Second)
	if claim.Acquired {
		fmt.Println("acquired")
		services.Lock.Release(ctx, "demo", claim.Token)
	}
	return err
}
