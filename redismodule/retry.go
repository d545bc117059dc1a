package redismodule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
)

// ownTries is how often a call that recognises its own earlier try is sent at most.
const ownTries = 3

// resolve makes a call that is safe to repeat with the same identity, and repeats it
// while its outcome is unknown: within ctx, not after until, with a short pause. Once
// a try is unknown, only a reply settles it: a later refusal says nothing of the first.
func resolve[R any](ctx context.Context, until time.Time, call func(context.Context) (R, error)) (R, error) {
	reply, err := call(ctx)
	if err == nil || !errors.Is(err, semantic.ErrUnknown) {
		return reply, err
	}
	first := err
	for try := 1; try < ownTries; try++ {
		if !pause(ctx, backoff(try)) || !time.Now().Before(until) {
			break
		}
		if reply, err = call(ctx); err == nil {
			return reply, nil
		}
	}
	return reply, first
}

// backoff is a jittered pause that doubles: 5 to 10 ms before the second try.
func backoff(try int) time.Duration {
	d := 5 * time.Millisecond << try
	return d/2 + rand.N(d/2)
}

// pause waits for d, and tells whether ctx let it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// malformed is the error of a reply that is not what the script gives. Its effect is
// unknown: something else answered.
func malformed(op conn.Op, reply any) error {
	return &semantic.OutcomeError{
		Operation: op.Name, Key: op.Key, Outcome: semantic.OutcomeUnknown,
		Cause: fmt.Errorf("%w: unexpected reply of type %T", semantic.ErrCorrupt, reply),
	}
}

// outcomeOf names the outcome of err for signals.
func outcomeOf(err error) string {
	var o *semantic.OutcomeError
	if errors.As(err, &o) {
		return string(o.Outcome)
	}
	return ""
}
