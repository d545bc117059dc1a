package operation_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// renewals is a coordinator whose Renew answers as told, and remembers when it was
// asked.
type renewals struct {
	operation.Coordinator
	clock *testkit.Clock
	term  time.Duration

	mu     sync.Mutex
	answer func(ctx context.Context, n int) (operation.RenewOutcome, error)
	asked  []time.Time
}

func (r *renewals) Renew(ctx context.Context, lease operation.Lease) (operation.RenewResult, error) {
	r.mu.Lock()
	sent := r.clock.Now()
	r.asked = append(r.asked, sent)
	n, answer := len(r.asked), r.answer
	r.mu.Unlock()
	outcome, err := answer(ctx, n)
	if outcome == operation.RenewRenewed {
		lease.ValidUntil = sent.Add(r.term)
	}
	return operation.RenewResult{Outcome: outcome, Lease: lease}, err
}

func (r *renewals) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// leaseUntil is a lease of 30 s as Begin gives it.
func leaseUntil(end time.Time) operation.Lease {
	return operation.Lease{
		Identity: operation.Identity{
			Tenant: "acme", Operation: "charge", IdempotencyKey: "1",
			Fingerprint: strings.Repeat("0123456789abcdef", 4), DurableID: "payment-1",
		},
		Token: operation.NewToken(), Attempt: 1, Term: 30 * time.Second, ValidUntil: end,
	}
}

// held starts a Hold of a 30 s lease whose work ends with its context or when told.
type held struct {
	*renewals
	finish  chan struct{}
	result  chan error
	lostErr error
	lost    int
	failed  int
}

func hold(t *testing.T, answer func(ctx context.Context, n int) (operation.RenewOutcome, error)) *held {
	t.Helper()
	clock := testkit.NewClock()
	h := &held{
		renewals: &renewals{clock: clock, term: 30 * time.Second, answer: answer},
		finish:   make(chan struct{}), result: make(chan error, 1),
	}
	k := operation.Keeper{
		Coordinator: h.renewals, Clock: clock,
		RenewFailed: func(operation.Lease, error) { h.failed++ },
		Lost:        func(_ operation.Lease, err error) { h.lost++; h.lostErr = err },
	}
	lease := leaseUntil(clock.Now().Add(30 * time.Second))
	go func() {
		h.result <- k.Hold(context.Background(), lease, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-h.finish:
				return nil
			}
		})
	}()
	return h
}

// pass moves the clock in steps of a second, waiting each time until the keeper waits.
func (h *held) pass(t *testing.T, d time.Duration) {
	t.Helper()
	for range int(d / time.Second) {
		deadline := time.Now().Add(10 * time.Second)
		for h.clock.Pending() == 0 {
			select {
			case err := <-h.result:
				h.result <- err
				return
			default:
			}
			if time.Now().After(deadline) {
				t.Fatal("the keeper does not wait for anything")
			}
			time.Sleep(50 * time.Microsecond)
		}
		h.clock.Advance(time.Second)
	}
}

func (h *held) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-h.result:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("Hold did not return")
		return nil
	}
}

var errDown = errors.New("down")

func TestHoldRenewsAtAThirdOfTheTerm(t *testing.T) {
	h := hold(t, func(context.Context, int) (operation.RenewOutcome, error) { return operation.RenewRenewed, nil })
	start := h.clock.Now()
	h.pass(t, 65*time.Second)
	close(h.finish)
	if err := h.end(t); err != nil {
		t.Fatal(err)
	}
	if h.count() < 5 || h.count() > 6 || h.asked[0].Sub(start) < 10*time.Second || h.asked[0].Sub(start) > 12*time.Second {
		t.Fatalf("renewed %d times, first after %v", h.count(), h.asked[0].Sub(start))
	}
}

// The reference gives up on the first failed renewal, with two thirds of the lease left.
func TestHoldUsesTheWholeLeaseBeforeItGivesUp(t *testing.T) {
	h := hold(t, func(context.Context, int) (operation.RenewOutcome, error) { return "", errDown })
	h.pass(t, 29*time.Second)
	select {
	case err := <-h.result:
		t.Fatalf("gave up with lease left: %v", err)
	default:
	}
	h.pass(t, 3*time.Second)
	if err := h.end(t); !errors.Is(err, operation.ErrLeaseLost) {
		t.Fatalf("got %v", err)
	}
	if h.count() < 4 || h.failed < 4 || h.lost != 1 || !errors.Is(h.lostErr, errDown) {
		t.Fatalf("%d tries, %d failures, lost %d times with %v", h.count(), h.failed, h.lost, h.lostErr)
	}
}

func TestHoldOutlivesAnOutageShorterThanTheLease(t *testing.T) {
	h := hold(t, func(_ context.Context, n int) (operation.RenewOutcome, error) {
		if n <= 3 {
			return "", errDown
		}
		return operation.RenewRenewed, nil
	})
	h.pass(t, 50*time.Second)
	close(h.finish)
	if err := h.end(t); err != nil || h.lost != 0 || h.failed != 3 {
		t.Fatalf("%v, lost %d times, %d failures", err, h.lost, h.failed)
	}
}

func TestHoldEndsTheWorkAsSoonAsTheLeaseIsLost(t *testing.T) {
	h := hold(t, func(context.Context, int) (operation.RenewOutcome, error) { return operation.RenewLost, nil })
	h.pass(t, 12*time.Second)
	if err := h.end(t); !errors.Is(err, operation.ErrLeaseLost) || h.count() != 1 || h.lost != 1 || h.lostErr != nil {
		t.Fatalf("%v after %d tries, lost %d times with %v", err, h.count(), h.lost, h.lostErr)
	}
}

func TestARenewalThatHangsDoesNotOutlastTheLease(t *testing.T) {
	h := hold(t, func(ctx context.Context, _ int) (operation.RenewOutcome, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	h.pass(t, 34*time.Second)
	if err := h.end(t); !errors.Is(err, operation.ErrLeaseLost) || h.count() < 2 {
		t.Fatalf("%v after %d tries", err, h.count())
	}
}

func TestHoldReturnsTheWorksErrorAndStopsWithIt(t *testing.T) {
	clock := testkit.NewClock()
	lease := leaseUntil(clock.Now().Add(time.Second))
	k := operation.Keeper{Coordinator: &renewals{}, Clock: clock}
	if err := k.Hold(t.Context(), lease, func(context.Context) error { return errDown }); !errors.Is(err, errDown) || errors.Is(err, operation.ErrLeaseLost) {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = k.Hold(t.Context(), lease, func(context.Context) error { panic("work") })
	}()
	if clock.Pending() != 0 {
		t.Fatal("a timer outlived Hold")
	}
}

func TestHoldRefusesWhatIsNoLease(t *testing.T) {
	work := func(context.Context) error { t.Error("the work ran"); return nil }
	if err := operation.Hold(t.Context(), &renewals{}, operation.Lease{}, work); !errors.Is(err, operation.ErrInvalid) {
		t.Error(err)
	}
	for _, spoil := range []func(*operation.Lease){
		func(l *operation.Lease) { l.Token = "" },
		func(l *operation.Lease) { l.Identity.Tenant = "" },
		func(l *operation.Lease) { l.Term = 0 },
		func(l *operation.Lease) { l.ValidUntil = time.Time{} },
	} {
		lease := leaseUntil(time.Now().Add(time.Minute))
		spoil(&lease)
		if err := operation.Hold(t.Context(), &renewals{}, lease, work); !errors.Is(err, operation.ErrInvalid) {
			t.Error(err)
		}
	}
}

func TestHoldRunsNothingWithAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := operation.Hold(ctx, &renewals{}, leaseUntil(time.Now().Add(time.Minute)), func(context.Context) error {
		t.Error("the work ran")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A closed coordinator renews nothing any more; the lease is held until it ends all the same.
func TestHoldAsksAClosedCoordinatorOnce(t *testing.T) {
	h := hold(t, func(context.Context, int) (operation.RenewOutcome, error) { return "", operation.ErrClosed })
	h.pass(t, 29*time.Second)
	select {
	case err := <-h.result:
		t.Fatalf("ended before the lease: %v", err)
	default:
	}
	h.pass(t, 2*time.Second)
	if err := h.end(t); !errors.Is(err, operation.ErrLeaseLost) || h.count() != 1 || !errors.Is(h.lostErr, operation.ErrClosed) {
		t.Fatalf("%v after %d renewals, lost with %v", err, h.count(), h.lostErr)
	}
}
