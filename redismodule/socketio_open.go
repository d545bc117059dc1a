package redismodule

import (
	"context"
	"errors"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
)

// OpenedSocketIO is a [SocketIOAdapter] with the two connections that were made for it.
type OpenedSocketIO struct {
	*SocketIOAdapter

	pub *conn.SocketIOPublisher
	sub *conn.SocketIOSubscriber
}

// OpenSocketIO checks config and returns an inert adapter: nothing is dialed before the
// first call. signals may be nil.
func OpenSocketIO(config Config, signals *observability.Signals) (*OpenedSocketIO, error) {
	settled, err := config.Settled()
	if err != nil {
		return nil, err
	}
	pub, sub := conn.NewSocketIOPublisher(settled.options()), conn.NewSocketIOSubscriber(settled.options())
	return &OpenedSocketIO{newSocketIOAdapter(settled, pub, sub, signals), pub, sub}, nil
}

// Close ends every subscription, waits for running handlers until ctx ends, and closes
// the connections. Afterwards every method returns [semantic.ErrClosed].
func (o *OpenedSocketIO) Close(ctx context.Context) error {
	return errors.Join(o.close(ctx), o.sub.Close(ctx), o.pub.Close(ctx))
}
