package recipes

import (
	"context"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

const sessionTTL = time.Minute

// Sessions knows which replica has a user's connection. The user may come back on
// another replica before this one has seen the old connection end.
type Sessions struct {
	lease    semantic.ResourceLease
	instance string
	offline  func(ctx context.Context, session string)
}

// NewSessions returns the sessions of the replica called instance.
func NewSessions(lease semantic.ResourceLease, instance string, offline func(ctx context.Context, session string)) *Sessions {
	return &Sessions{lease, instance, offline}
}

// Connected makes this replica the owner, whoever was it before. previous is that
// replica, or "" if the session is new.
func (s *Sessions) Connected(ctx context.Context, session string) (previous string, err error) {
	return s.lease.TakeOver(ctx, "session:"+session, s.instance, sessionTTL)
}

// Alive is called at every heartbeat of the connection. false: it lives elsewhere now.
func (s *Sessions) Alive(ctx context.Context, session string) (mine bool, err error) {
	return s.lease.Claim(ctx, "session:"+session, s.instance, sessionTTL)
}

// Disconnected tells the others that the user has gone, unless the user has only moved.
func (s *Sessions) Disconnected(ctx context.Context, session string) {
	switch r := s.lease.Release(ctx, "session:"+session, s.instance); {
	case r.Removed:
		s.offline(ctx, session)
	case r.Reason == semantic.ReasonReclaimed:
		// the user is on r.Holder: say nothing
	case r.Reason == semantic.ReasonNoHolder:
		// it lapsed; whoever watches for that has said so
	default:
		// REDIS_UNAVAILABLE: not known, so treated as not owned; r.Err has the cause
	}
}

// RunPartition works on a partition until ctx ends or the lease is lost. held is false
// when another replica has it.
func RunPartition(ctx context.Context, lease semantic.ResourceLease, instance string, work func(ctx context.Context) error) (held bool, err error) {
	return lease.Hold(ctx, "partition:7", instance, 30*time.Second, func(ctx context.Context) error {
		return work(ctx) // ctx ends with cause semantic.ErrLeaseLost before another can have it
	})
}
