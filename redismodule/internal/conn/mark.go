package conn

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// sendMark is the last argument of a command. The client library asks it for its
// bytes at the moment it writes the command, after the pool wait, the dial and the
// handshake; so it knows, whatever error comes back, whether the command can have
// reached the server. A command whose last argument was never written is incomplete
// and is not executed.
type sendMark struct {
	ctx   context.Context // the caller's
	arg   any
	state atomic.Int32
	pack  *pack // what the command is written with; nil: it goes by itself
}

const (
	waiting   int32 = iota // not yet handed to a connection
	written                // being written: from here on it may be applied
	abandoned              // its caller gave up first: it is never written
)

// markLast puts a mark in the place of the last argument.
func markLast(ctx context.Context, args []any) *sendMark {
	last := len(args) - 1
	mark := &sendMark{ctx: ctx, arg: args[last]}
	args[last] = mark
	return mark
}

// MarshalBinary gives the argument's bytes and marks the command as written. Once the
// caller has given up it fails, and the library drops the connection unsent.
func (m *sendMark) MarshalBinary() ([]byte, error) {
	if m.pack != nil {
		if err := m.pack.seal(); err != nil {
			return nil, err
		}
	} else if !m.write() {
		return nil, cmp.Or(m.ctx.Err(), context.Canceled)
	}
	switch v := m.arg.(type) {
	case string:
		return []byte(v), nil
	case *string:
		return []byte(*v), nil
	case []byte:
		return v, nil
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case int:
		return strconv.AppendInt(nil, int64(v), 10), nil
	default:
		return nil, fmt.Errorf("argument of type %T cannot be sent", m.arg)
	}
}

// String gives the argument as text: the client library prints an argument of a type
// it does not know to find the Cluster slot of a command whose only key comes last.
func (m *sendMark) String() string {
	switch v := m.arg.(type) {
	case []byte:
		return string(v)
	case *string:
		return *v
	}
	return fmt.Sprint(m.arg)
}

// write marks the command as written, unless its caller has given up.
func (m *sendMark) write() bool {
	if m.gone() {
		return false
	}
	return m.state.CompareAndSwap(waiting, written) || m.sent()
}

// gone tells whether the caller has given up before the command was written. Whose
// context has ended has.
func (m *sendMark) gone() bool {
	return m.ctx.Err() != nil && m.abandon() || m.state.Load() == abandoned
}

// unwrite takes write back: nothing was written.
func (m *sendMark) unwrite() { m.state.CompareAndSwap(written, waiting) }

// abandon makes sure that the command is not written from now on, and tells whether
// that was in time.
func (m *sendMark) abandon() bool {
	return m.state.CompareAndSwap(waiting, abandoned) || m.state.Load() == abandoned
}

// sent tells whether the command may have reached the server.
func (m *sendMark) sent() bool { return m.state.Load() == written }

// onceCmd is a command that the client library must not send again by itself.
type onceCmd struct{ *redis.Cmd }

// NoRetry turns the library's retries off for this command.
func (onceCmd) NoRetry() bool { return true }
