package observability

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Signals of broadcast subscriptions.
const (
	SubscriptionDropped      Key = "redis.subscription.dropped"
	SubscriptionResubscribed Key = "redis.subscription.resubscribed"
	SubscriptionOverflow     Key = "redis.subscription.overflow"
	SubscriptionBadMessage   Key = "redis.subscription.bad_message"
	SubscriptionPanicked     Key = "redis.subscription.handler_panicked"
)

func broadcastSignals() []Signal {
	return []Signal{
		{
			Key: SubscriptionDropped, Level: zapcore.WarnLevel, Message: "subscription link lost",
			Fields:  []Field{{"channels", Number}, {"error", Failure}},
			Meaning: "The link of the broadcast subscriptions was lost; messages published until it is back are missed.",
			Action:  "Check the Redis server and the network for a link that comes and goes. Local caches flush when it is back; until then their TTL bounds staleness.",
			Alarm:   sustained(3),
		},
		{
			Key: SubscriptionResubscribed, Level: zapcore.InfoLevel, Message: "subscriptions confirmed again",
			Fields:  []Field{{"channels", Number}, {"gap_ms", Millis}},
			Meaning: "The server has confirmed every subscription again, gap_ms after the last proof of life.",
			Action:  "Nothing; it ends a redis.subscription.dropped.",
			Waiver:  "the recovery of an alarmed signal",
		},
		{
			Key: SubscriptionOverflow, Level: zapcore.WarnLevel, Message: "broadcast queue overflowed",
			Fields:  []Field{{"channel", Text}, {"missed", Number}},
			Meaning: "A handler was slower than its messages and some were dropped.",
			Action:  "Make the handler faster or its queue longer; its gap handler was told.",
			Alarm:   atLeast(1),
		},
		{
			Key: SubscriptionBadMessage, Level: zapcore.WarnLevel, Message: "broadcast could not be decoded",
			Fields:  []Field{{"channel", Text}, {"error", Failure}},
			Meaning: "A broadcast could not be decoded and was left out.",
			Action:  "Look for a publisher of another version, or one outside Coord, on this channel.",
			Alarm:   atLeast(1),
		},
		{
			Key: SubscriptionPanicked, Level: zapcore.ErrorLevel, Message: "broadcast handler panicked",
			Fields:  []Field{{"channel", Text}, {"error", Failure}},
			Meaning: "A broadcast handler panicked; the next message was handled as usual.",
			Action:  "Fix the handler.",
			Alarm:   atLeast(1),
		},
	}
}

// SubscriptionDropped emits redis.subscription.dropped.
func (s *Signals) SubscriptionDropped(channels int, err error) {
	s.emit(SubscriptionDropped, zap.Int("channels", channels), errField(err))
}

// SubscriptionResubscribed emits redis.subscription.resubscribed.
func (s *Signals) SubscriptionResubscribed(channels int, gap time.Duration) {
	s.emit(SubscriptionResubscribed, zap.Int("channels", channels), gapField(gap))
}

// SubscriptionOverflow emits redis.subscription.overflow.
func (s *Signals) SubscriptionOverflow(channel string, missed int) {
	s.emit(SubscriptionOverflow, zap.String("channel", channel), zap.Int("missed", missed))
}

// SubscriptionBadMessage emits redis.subscription.bad_message.
func (s *Signals) SubscriptionBadMessage(channel string, err error) {
	s.emit(SubscriptionBadMessage, zap.String("channel", channel), errField(err))
}

// SubscriptionPanicked emits redis.subscription.handler_panicked.
func (s *Signals) SubscriptionPanicked(channel string, err error) {
	s.emit(SubscriptionPanicked, zap.String("channel", channel), errField(err))
}
