package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/semantic"
)

// refusals are the error codes with which a server, or a script before its first
// write, says that it did not execute the command.
var refusals = map[string]bool{
	"READONLY": true, "OOM": true, "LOADING": true, "MASTERDOWN": true, "NOREPLICAS": true,
	"MISCONF": true, "BUSY": true, "CLUSTERDOWN": true, "TRYAGAIN": true, "CROSSSLOT": true,
	"MOVED": true, "ASK": true, "NOAUTH": true, "NOPERM": true, "WRONGPASS": true,
	"DENIED": true, "NOSCRIPT": true, "NOPROTO": true,
}

// classify is the one place where a failed command gets its outcome. sent tells
// whether it may have reached the server.
func classify(ctx context.Context, op Op, err error, sent bool) error {
	outcome := func(o semantic.Outcome) error {
		return &semantic.OutcomeError{Operation: op.Name, Key: op.Key, Outcome: o, Cause: withContext(ctx, err)}
	}
	var reply redis.Error
	switch {
	case errors.As(err, &reply):
		switch code := errorCode(reply.Error()); {
		case code == "WRONGTYPE":
			return fmt.Errorf("%s %q: %w: %w", op.Name, op.Key, semantic.ErrWrongType, err)
		case refusals[code], strings.HasPrefix(reply.Error(), "ERR max number of clients"):
			return outcome(semantic.OutcomeUnavailable)
		}
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%s %q: %w", op.Name, op.Key, semantic.ErrClosed)
	}
	// Whatever failed, a read changes nothing and an unsent command is not applied.
	if op.ReadOnly || !sent {
		return outcome(semantic.OutcomeUnavailable)
	}
	return outcome(semantic.OutcomeUnknown)
}

// errorCode is the first word of an error reply. Servers before 7 wrap what a script
// met: "ERR Error running script (…): @user_script:1: -READONLY …".
func errorCode(message string) string {
	if strings.HasPrefix(message, "ERR Error running script") {
		if _, inner, found := strings.Cut(message, ": -"); found {
			message = inner
		}
	}
	code, _, _ := strings.Cut(message, " ")
	return code
}

// withContext adds the context's error to a timeout that the context caused: the
// network reports it as an i/o timeout of its own, a little earlier.
func withContext(ctx context.Context, err error) error {
	if cerr := ctx.Err(); cerr != nil {
		if errors.Is(err, cerr) {
			return err
		}
		return errors.Join(cerr, err)
	}
	var timeout net.Error
	if deadline, ok := ctx.Deadline(); ok && errors.As(err, &timeout) && timeout.Timeout() &&
		time.Until(deadline) <= time.Millisecond && !errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(context.DeadlineExceeded, err)
	}
	return err
}
