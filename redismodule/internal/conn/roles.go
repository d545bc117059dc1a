package conn

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/semantic"
)

// Command is the role of every request and reply: scripts, cache, publishing.
type Command struct{ link }

// AppSubscriber is the role of the application's subscriptions.
type AppSubscriber struct{ link }

// SocketIOPublisher is the publishing role of the Socket.IO adapter.
type SocketIOPublisher struct{ link }

// SocketIOSubscriber is the subscribing role of the Socket.IO adapter.
type SocketIOSubscriber struct{ link }

// NewCommand returns an inert connection of the command role.
func NewCommand(o Options) *Command { return &Command{link{options: named(o, "command")}} }

// NewAppSubscriber returns an inert connection of the application subscriber role.
func NewAppSubscriber(o Options) *AppSubscriber {
	return &AppSubscriber{link{options: named(o, "subscriber")}}
}

// NewSocketIOPublisher returns an inert connection of the Socket.IO publisher role.
func NewSocketIOPublisher(o Options) *SocketIOPublisher {
	return &SocketIOPublisher{link{options: named(o, "sio-publisher")}}
}

// NewSocketIOSubscriber returns an inert connection of the Socket.IO subscriber role.
func NewSocketIOSubscriber(o Options) *SocketIOSubscriber {
	return &SocketIOSubscriber{link{options: named(o, "sio-subscriber")}}
}

func named(o Options, role string) Options {
	o.ClientName += ":" + role
	return o
}

// OpenFeed makes a dedicated subscriber connection without channels, which dials on
// first use. Its owner closes it, before it closes the role.
func (s *AppSubscriber) OpenFeed(ctx context.Context) (*redis.PubSub, error) { return s.openFeed(ctx) }

// OpenFeed makes a dedicated subscriber connection, as that of [AppSubscriber].
func (s *SocketIOSubscriber) OpenFeed(ctx context.Context) (*redis.PubSub, error) {
	return s.openFeed(ctx)
}

func (l *link) openFeed(ctx context.Context) (*redis.PubSub, error) {
	client := l.open(false)
	if client == nil {
		return nil, fmt.Errorf("subscribe: %w", semantic.ErrClosed)
	}
	return client.Subscribe(ctx), nil
}
