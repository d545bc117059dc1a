package recipes

import (
	"context"
	"sync"

	"github.com/wrkbelt/coord/semantic"
)

// Prices keeps prices in memory and forgets one when any replica says that it changed.
type Prices struct {
	channel semantic.BroadcastChannel
	known   sync.Map // product to price

	subscription semantic.Subscription
}

// NewPrices returns prices that forget nothing before Start.
func NewPrices(channel semantic.BroadcastChannel) *Prices { return &Prices{channel: channel} }

// Start subscribes. It returns once the server has confirmed that.
func (p *Prices) Start(ctx context.Context) (err error) {
	p.subscription, err = semantic.SubscribeTo(ctx, p.channel, "prices",
		func(_ context.Context, product string, _ semantic.Message) { p.known.Delete(product) }, nil,
		semantic.WithGapHandler(func(context.Context, semantic.Gap) { p.known.Clear() })) // may have missed some
	return err
}

// Stop returns when no handler runs any more.
func (p *Prices) Stop() { p.subscription.Unsubscribe() }

// Changed is called after the database has the new price.
func (p *Prices) Changed(ctx context.Context, product string) error {
	return p.channel.Publish(ctx, "prices", product)
}
