package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/operationstore"
	"github.com/wrkbelt/coord/semantic/operation"
)

// providerAccount is ours at the payment provider.
const providerAccount = "tickets:main"

// sale is one try to serve one request.
type sale struct {
	db          Durable
	coordinator operation.Coordinator
	provider    providerClient
	at          hook
	// naive names the charge by the lease's token instead of the durable id, the mistake
	// that the table is there to show.
	naive bool
}

// saleConfig is what a sale's process is told.
type saleConfig struct {
	store, storeAddress   string
	redis, provider, dies string
	naive                 bool
}

// runSale serves one request in this process.
func runSale(ctx context.Context, c saleConfig, r Request) (order Order, err error) {
	at := dieAt(c.dies)
	db, err := openStore(ctx, c.store, c.storeAddress, at)
	if err != nil {
		return Order{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	operations, err := openOperations(ctx, c.redis)
	if err != nil {
		return Order{}, err
	}
	defer func() { err = errors.Join(err, operations.Close(ctx)) }()
	s := &sale{db: db, coordinator: operations, provider: providerClient{url: c.provider, at: at}, at: at, naive: c.naive}
	return s.serve(ctx, r)
}

func openOperations(ctx context.Context, url string) (*operationstore.Opened, error) {
	operations, err := operationstore.Open(operationstore.Config{
		Redis: redismodule.Config{URL: url}, Namespace: "ticketing", Lease: saleLease,
	}, nil)
	if err != nil {
		return nil, err
	}
	return operations, operations.Start(ctx)
}

// serve is the sequence: prepare, begin, reconcile, pay, finish, complete, publish.
func (s *sale) serve(ctx context.Context, r Request) (Order, error) {
	s.at(pointStart)
	order, err := s.db.Prepare(ctx, r)
	if err != nil || order.State == Declined {
		return order, err
	}
	s.at(pointPrepared)
	id, err := identify(order)
	if err != nil {
		return order, err
	}
	lease, acquired, err := s.begin(ctx, id)
	if err != nil {
		return order, err
	}
	if acquired {
		err = operation.Hold(ctx, s.coordinator, lease, func(ctx context.Context) error {
			return s.work(ctx, lease, order.ID)
		})
		if err != nil {
			return order, err
		}
	}
	s.at(pointCompleted)
	if err := s.publish(ctx, r.Seat); err != nil {
		return order, err
	}
	s.at(pointMarked)
	return s.db.Order(ctx, order.ID)
}

// identify makes the operation's identity of what the database holds, not of the
// request: a key that comes again with another seat is a conflict.
func identify(o Order) (operation.Identity, error) {
	fingerprint, err := operation.FingerprintNamed("ticket-v1", map[string]string{
		"buyer": o.Request.Buyer, "seat": o.Request.Seat, "amount": strconv.FormatInt(o.Request.AmountMinor, 10),
	})
	return operation.Identity{
		Tenant: "box-office", Operation: "sell", IdempotencyKey: o.Request.Key,
		Fingerprint: fingerprint, DurableID: o.ID,
	}, err
}

// begin waits for its turn. acquired is false when the operation is completed already.
func (s *sale) begin(ctx context.Context, id operation.Identity) (lease operation.Lease, acquired bool, err error) {
	var opts []operation.BeginOption
	for {
		r, err := s.coordinator.Begin(ctx, id, opts...)
		wait := 20 * time.Millisecond
		var unknown *operation.UnknownError
		switch {
		case errors.As(err, &unknown): // our own lease may be there: ask for it
			opts = []operation.BeginOption{operation.WithToken(unknown.Token)}
		case errors.Is(err, operation.ErrUnavailable), errors.Is(err, operation.ErrRejected): // nothing was written
		case err != nil:
			return lease, false, err
		case r.Outcome == operation.BeginAcquired:
			fmt.Fprintf(os.Stderr, "%s: attempt %d, takeover %v\n", id.DurableID, r.Lease.Attempt, r.Lease.Takeover)
			s.at(pointBegun)
			return r.Lease, true, nil
		case r.Outcome == operation.BeginCompleted:
			return lease, false, nil
		case r.Outcome == operation.BeginInProgress: // a service would answer "pending"
			wait = min(r.Remaining, 100*time.Millisecond)
		default:
			return lease, false, fmt.Errorf("begin %s: %s", id.DurableID, r.Outcome)
		}
		if err := pause(ctx, wait); err != nil {
			return lease, false, err
		}
	}
}

// work brings the order to its end from wherever an earlier attempt left it.
func (s *sale) work(ctx context.Context, lease operation.Lease, id string) error {
	order, charged, key, err := s.reconcile(ctx, lease, id)
	if err != nil {
		// Nothing has been touched: let the next attempt have its turn at once.
		_, _ = s.coordinator.Abandon(ctx, lease)
		return err
	}
	s.at(pointReconciled)
	if order.State == Held {
		if charged == nil {
			if charged, err = s.provider.pay(ctx, key, order.Request.Buyer, order.Request.AmountMinor); err != nil {
				return err // the charge may exist: the lease lapses, the next attempt reconciles
			}
		}
		s.at(pointCharged)
		if order, err = s.db.Finish(ctx, id, charged.ID); err != nil {
			return err
		}
	}
	s.at(pointFinished)
	// Whatever this says, the stored result stands. A lost lease or reply is repaired
	// by the next begin, never by charging again.
	r, err := s.coordinator.Complete(ctx, lease, order.ID)
	if err != nil || r.Outcome != operation.CompleteCompleted {
		fmt.Fprintf(os.Stderr, "%s: complete: %s %v\n", id, r.Outcome, err)
	}
	return nil
}

// reconcile asks the database and the provider how far earlier attempts got.
func (s *sale) reconcile(ctx context.Context, lease operation.Lease, id string) (order Order, charged *charge, key string, err error) {
	if order, err = s.db.Order(ctx, id); err != nil || order.State != Held {
		return order, nil, "", err
	}
	if key, err = operation.ProviderKey(order.ID, providerAccount); err != nil {
		return order, nil, "", err
	}
	if s.naive {
		key = string(lease.Token)
	}
	charged, err = s.provider.lookup(ctx, key)
	return order, charged, key, err
}

// publish empties the outbox, and returns when the seat's event is out. In a service
// this is a loop of its own.
func (s *sale) publish(ctx context.Context, seat string) error {
	for {
		events, err := s.db.ClaimEvents(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			s.at(pointClaimed)
			if err := s.provider.publish(ctx, e); err != nil {
				return err
			}
			s.at(pointPublished)
			if err := s.db.MarkPublished(ctx, e.ID); err != nil {
				return err
			}
		}
		census, err := s.db.Census(ctx, seat)
		if err != nil || census.Unpublished == 0 {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil { // a dead publisher's claim is still there
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
