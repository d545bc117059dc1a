package conn

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/semantic"
)

// Inspect shows the role's client to look, which proves something about it and keeps
// nothing of it. [Command.Close] waits for look.
func (c *Command) Inspect(op Op, look func(client redis.UniversalClient) error) error {
	client, err := c.enter(op)
	if err != nil {
		return err
	}
	defer c.calls.Done()
	return look(client)
}

// Pool gives the state of the role's connections; ok is false after close. A direct one
// is idle while no request uses it, although the library sees it in use all the time.
func (c *Command) Pool() (stats redis.PoolStats, ok bool) {
	err := c.Inspect(Op{}, func(client redis.UniversalClient) error {
		stats = *client.PoolStats()
		return nil
	})
	stats.IdleConns += c.directs.spare()
	return stats, err == nil
}

// RefusalCode tells whether err is a server's refusal of a command, which proves that
// nothing was written, and gives its code: READONLY, OOM, WRONGTYPE, …
func RefusalCode(err error) (code string, refused bool) {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, semantic.ErrUnknown) {
		return "", false
	}
	return errorCode(reply.Error()), true
}
