package operationstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/semantic/operation"
)

// send takes c through the gate to Redis, and a second time where the first one's
// reply was lost: every command recognises its own earlier try by its token. It
// returns the reply and the instant before the request that brought it.
func (s *Store) send(ctx context.Context, c *call) (reply, time.Time, error) {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(s.config.CommandDeadline)
	}
	ctx, cancel := context.WithDeadline(ctx, c.deadline)
	defer cancel()
	if err := s.gate.enter(ctx, c.size); err != nil {
		return reply{}, time.Time{}, s.failed(ctx, c, err)
	}
	// The slot is held by this call and by each of its requests, until the last of
	// them has settled.
	slot := &slot{gate: s.gate}
	slot.add(1)
	defer slot.add(-1)
	c.op.InFlight = slot.add

	sent := s.clock.Now()
	raw, err := s.transport.run(ctx, c.op, c.keys[:], c.args[:]...)
	if errors.Is(err, semantic.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		sent = s.clock.Now()
		again, repeated := s.transport.run(ctx, c.op, c.keys[:], c.args[:]...)
		// Only a reply settles what the first try did: a refusal says nothing of it.
		if repeated == nil {
			raw, err = again, nil
		}
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			s.gate.timedOut()
		}
		return reply{}, time.Time{}, s.failed(ctx, c, err)
	}
	r, ok := decode(raw)
	switch {
	case !ok:
		return reply{}, time.Time{}, s.malformed(c, r)
	case r.is("invalid_record", 0):
		return reply{}, time.Time{}, s.report(c, &operation.RejectedError{
			Command: c.name, Code: "INVALID_RECORD",
			Cause: fmt.Errorf("%s: %w", c.op.Key, semantic.ErrCorrupt),
		})
	}
	return r, sent, nil
}

// slot is a place in the gate, left when its count returns to zero.
type slot struct {
	gate *gate
	held atomic.Int32
}

func (s *slot) add(delta int) {
	if s.held.Add(int32(delta)) == 0 {
		s.gate.leave()
	}
}

// failed gives an error of the gate or of the connection layer its class.
func (s *Store) failed(ctx context.Context, c *call, err error) error {
	code, refused := conn.RefusalCode(err)
	switch {
	case errors.Is(err, errUnproven):
		return s.report(c, &operation.RejectedError{Command: c.name, Code: "READONLY", Cause: err})
	case errors.Is(err, errDenied):
		return s.report(c, &operation.RejectedError{Command: c.name, Code: "NOPERM", Cause: fmt.Errorf("%s: %w", c.op.Key, err)})
	case refused && code != "ERR":
		return s.report(c, &operation.RejectedError{Command: c.name, Code: code, Cause: err})
	case errors.Is(err, semantic.ErrClosed):
		return &operation.UnavailableError{Command: c.name, Cause: errors.Join(operation.ErrClosed, err)}
	case errors.Is(err, semantic.ErrUnknown):
		return s.report(c, &operation.UnknownError{Command: c.name, Token: c.token, Cause: err})
	}
	unavailable := &operation.UnavailableError{Command: c.name, Cause: err}
	if errors.Is(ctx.Err(), context.Canceled) {
		return unavailable // the caller's own doing is no signal
	}
	return s.report(c, unavailable)
}

// malformed is the error of a reply that the script never gives: something else
// answered, so nothing is known. A read changes nothing even so.
func (s *Store) malformed(c *call, r reply) error {
	err := fmt.Errorf("reply %q with %d fields: %w", r.outcome, len(r.fields), semantic.ErrCorrupt)
	if c.op.ReadOnly {
		return s.report(c, &operation.UnavailableError{Command: c.name, Cause: err})
	}
	return s.report(c, &operation.UnknownError{Command: c.name, Token: c.token, Cause: err})
}

// report emits the signal that belongs to err, and returns it.
func (s *Store) report(c *call, err error) error {
	var rejected *operation.RejectedError
	switch {
	case errors.As(err, &rejected):
		s.signals.OperationRejected(c.name, rejected.Code, err)
	case errors.Is(err, operation.ErrUnknown):
		s.signals.OperationUnknown(c.name, err)
	default:
		s.signals.OperationUnavailable(c.name, err)
	}
	return err
}

// reply is what the script answers: an outcome and its fields.
type reply struct {
	outcome string
	fields  []string
}

func decode(raw any) (reply, bool) {
	text, ok := raw.(string)
	if !ok {
		return reply{}, false
	}
	parts := strings.Split(text, " ")
	return reply{outcome: parts[0], fields: parts[1:]}, true
}

func (r reply) is(outcome string, fields int) bool {
	return r.outcome == outcome && len(r.fields) == fields
}

func (r reply) isRef(outcome string) bool {
	return r.is(outcome, 1) && operation.ValidateResultRef(r.fields[0]) == nil
}

// number is a field as a positive number, 0 if it is none. What another replica's
// settings or a step of the server's clock can make of it is not for this one to limit.
func (r reply) number(field int) int64 {
	n, err := strconv.ParseInt(r.fields[field], 10, 64)
	if err != nil || n < 0 || n >= 1<<53 {
		return 0
	}
	return n
}

// duration is a field in ms; what time.Duration cannot hold is cut.
func (r reply) duration(field int) time.Duration {
	return time.Duration(min(r.number(field), int64(operation.MaxRetention/time.Millisecond)*12)) * time.Millisecond
}
