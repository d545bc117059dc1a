package operationstore

import (
	"context"
	_ "embed"
	"sync/atomic"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
)

//go:embed lua/operation.lua
var operationLua string

// transport sends the operation script to one proven primary. It owns no connection:
// close ends its use, and whoever made the connection closes it.
type transport struct {
	runner scripts
	script *conn.Script
	closed atomic.Bool
}

// scripts is what the transport needs of a connection: [conn.Command].
type scripts interface {
	Run(ctx context.Context, op conn.Op, s *conn.Script, keys []string, args ...any) (any, error)
}

func newTransport(runner scripts) *transport {
	return &transport{runner: runner, script: conn.NewScript("operation", operationLua)}
}

func (t *transport) run(ctx context.Context, op conn.Op, keys []string, args ...any) (any, error) {
	if t.closed.Load() {
		return nil, semantic.ErrClosed
	}
	raw, err := t.runner.Run(ctx, op, t.script, keys, args...)
	return raw, denied(err)
}

func (t *transport) close() { t.closed.Store(true) }
