package observability

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of the Socket.IO adapter.
const (
	AdapterDisconnected Key = "redis.adapter.disconnected"
	AdapterReconnected  Key = "redis.adapter.reconnected"
)

func socketioSignals() []Signal {
	return []Signal{
		{
			Key: AdapterDisconnected, Level: zapcore.WarnLevel, Message: "socket.io adapter link lost",
			Fields:  []Field{{"role", Text}, {"error", Failure}},
			Meaning: "A Redis link of the Socket.IO adapter was lost.",
			Action:  "Check the Redis server and the network; sockets of this replica miss cross-replica emits until it is back.",
			Alarm:   atLeast(1),
		},
		{
			Key: AdapterReconnected, Level: zapcore.InfoLevel, Message: "socket.io adapter link is back",
			Fields:  []Field{{"role", Text}, {"gap_ms", Millis}},
			Meaning: "The Socket.IO adapter's link is back after gap_ms.",
			Action:  "Nothing; it ends a redis.adapter.disconnected.",
			Waiver:  "the recovery of an alarmed signal",
		},
	}
}

// AdapterDisconnected emits redis.adapter.disconnected.
func (s *Signals) AdapterDisconnected(role string, err error) {
	s.emit(AdapterDisconnected, zap.String("role", role), errField(err))
}

// AdapterReconnected emits redis.adapter.reconnected.
func (s *Signals) AdapterReconnected(role string, gap time.Duration) {
	s.emit(AdapterReconnected, zap.String("role", role), gapField(gap))
}
