package operation

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"time"
)

// Clock is the local clock that bounds how long a lease is trusted; whose it is, the
// backend's clock decides.
type Clock interface {
	// Now returns the local time; the system clock's carries a monotonic reading.
	Now() time.Time
	// AfterFunc runs f on its own goroutine once d has passed, unless stop is called
	// first; stop tells whether it prevented the run.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// Keeper keeps leases alive while work is done under them.
type Keeper struct {
	Coordinator Coordinator
	Clock       Clock                        // nil: the system's
	RenewFailed func(lease Lease, err error) // a renewal failed and is tried again; may be nil
	// Lost is called once, before Hold returns, whenever Hold's error is or holds
	// [ErrLeaseLost]; err is the last failed renewal's, nil when the backend said that the
	// lease is lost or none was tried. May be nil.
	Lost func(lease Lease, err error)
}

// Hold is [Keeper.Hold] with the system clock.
func Hold(ctx context.Context, c Coordinator, lease Lease, fn func(context.Context) error) error {
	return Keeper{Coordinator: c}.Hold(ctx, lease, fn)
}

// Hold runs fn, renewing lease at a third of its term. Failed renewals are tried again
// until the last instant at which the lease is surely held; then, or as soon as the
// backend says that it is lost, fn's context ends with cause [ErrLeaseLost]. It
// returns fn's error, joined with ErrLeaseLost if the lease was lost before fn
// returned, whatever fn's context ended with. It neither completes nor abandons; that is
// for fn's caller.
//
// fn is not run under a lease that has ended, which is ErrLeaseLost, with a ctx that has
// ended, whose error Hold returns, or with an argument out of bounds ([InvalidError]).
// After [ErrClosed] nothing is tried any more, and the work has what is left of the lease.
//
// Hold waits for fn, and for a renewal in flight.
func (k Keeper) Hold(ctx context.Context, lease Lease, fn func(context.Context) error) (err error) {
	switch {
	case ctx == nil:
		return ValidateContext(ctx)
	case isNil(k.Coordinator):
		return &InvalidError{Argument: "coordinator", Allowed: "one that is not nil"}
	case fn == nil:
		return &InvalidError{Argument: "fn", Allowed: "a function"}
	case lease.Term <= 0 || lease.ValidUntil.IsZero():
		return &InvalidError{Argument: "lease", Allowed: "one that Begin or Renew gave"}
	}
	if err := cmp.Or(lease.Validate(), ctx.Err()); err != nil {
		return err
	}
	if isNil(k.Clock) {
		k.Clock = systemClock{}
	}
	if !k.Clock.Now().Before(lease.ValidUntil) { // it cannot be relied on any more: fn is not run
		k.tell(lease, nil)
		return ErrLeaseLost
	}
	work, end := context.WithCancelCause(ctx)
	defer end(nil)
	// Renewals go on while fn winds down after a cancel: the lease is not given up
	// before the work has ended.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	lost := make(chan bool, 1)
	go func() { lost <- k.keep(renewing, lease, end) }()
	defer func() { // also when fn panics
		stop()
		if <-lost && !errors.Is(err, ErrLeaseLost) {
			err = errors.Join(err, ErrLeaseLost)
		}
	}()
	return fn(work)
}

// isNil tells whether v is nil or holds a nil pointer, whose methods would panic.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}

// keep renews until ctx ends or the lease is lost, and tells whether that was it.
func (k Keeper) keep(ctx context.Context, lease Lease, end context.CancelCauseFunc) (lost bool) {
	var last error
	lose := func(err error) bool {
		end(ErrLeaseLost)
		k.tell(lease, err)
		return true
	}
	// stopped is lose for the case that fn has returned.
	stopped := func() bool { return !k.Clock.Now().Before(lease.ValidUntil) && lose(last) }
	pause := lease.Term / 3
	for {
		left := lease.ValidUntil.Sub(k.Clock.Now())
		if left <= 0 {
			return lose(last)
		}
		if !k.wait(ctx, min(pause, left)) {
			return stopped()
		}
		left = lease.ValidUntil.Sub(k.Clock.Now())
		if left <= 0 {
			return lose(last)
		}
		// One try gets a third of the term, so that a hanging one leaves room for
		// another, and never outlasts the lease.
		try, cancel := context.WithCancel(ctx)
		disarm := k.Clock.AfterFunc(min(lease.Term/3, left), cancel)
		result, err := k.Coordinator.Renew(try, lease)
		disarm()
		cancel()
		switch {
		case ctx.Err() != nil:
			return stopped()
		case err == nil && result.Outcome == RenewRenewed:
			lease, last, pause = result.Lease, nil, lease.Term/3
		case err == nil:
			return lose(nil)
		default:
			last, pause = err, lease.Term/12
			if errors.Is(err, ErrClosed) {
				pause = left // it stays so
			}
			if k.RenewFailed != nil {
				k.RenewFailed(lease, err)
			}
		}
	}
}

// tell runs the hook of a loss.
func (k Keeper) tell(lease Lease, err error) {
	if k.Lost != nil {
		k.Lost(lease, err)
	}
}

// wait sleeps for d and tells whether ctx is still alive.
func (k Keeper) wait(ctx context.Context, d time.Duration) bool {
	due := make(chan struct{})
	stop := k.Clock.AfterFunc(d, func() { close(due) })
	defer stop()
	select {
	case <-due:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
