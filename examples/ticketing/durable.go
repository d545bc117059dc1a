package main

import (
	"context"
	"errors"
	"fmt"
)

// Durable is the database: the one place that says what was sold to whom. Every method
// is safe to repeat.
type Durable interface {
	// Prepare finds or creates the order of a request and claims its seat, under a
	// constraint that knows nothing of the request's key: one order per seat.
	Prepare(ctx context.Context, r Request) (Order, error)
	// Order reads an order.
	Order(ctx context.Context, id string) (Order, error)
	// Finish stores the final result and its outbox event, together or not at all.
	Finish(ctx context.Context, id, charge string) (Order, error)
	// ClaimEvents gives the unpublished events to one publisher for a while.
	ClaimEvents(ctx context.Context) ([]Event, error)
	// MarkPublished ends an event's life in the outbox.
	MarkPublished(ctx context.Context, id string) error
	// Census counts what there is, for the table.
	Census(ctx context.Context, seat string) (Census, error)
	Close() error
}

// Request is what a buyer asks for. Key is the same for every try of one purchase.
type Request struct {
	Key         string
	Buyer, Seat string
	AmountMinor int64
}

// State is how far an order is.
type State string

const (
	Held     State = "held"     // the seat is the order's, nothing is paid
	Declined State = "declined" // the seat is another order's; final
	Sold     State = "sold"     // paid; final
)

// Order is a purchase. Its ID is the operation's durable id.
type Order struct {
	ID      string
	Request Request
	State   State
	Charge  string // the provider's, when sold
}

// Event is what the outbox tells the rest of the world.
type Event struct {
	ID, Order, Seat string
}

// Census is what is stored about one seat.
type Census struct {
	Seats, Sold, Declined, Events, Unpublished int
}

// orderID is stable for a request, so that a prepare that is repeated finds itself.
func orderID(key string) string { return "order-" + key }

// eventID is stable for an order, so that subscribers can recognise a repetition.
func eventID(order string) string { return "sold-" + order }

// errNoOrder is a bug: only prepared orders are read or finished.
var errNoOrder = errors.New("no such order")

// hook is called inside the adapters' transactions with the name of the point.
type hook func(point string)

// openStore opens an adapter by name.
func openStore(ctx context.Context, kind, address string, at hook) (Durable, error) {
	switch kind {
	case "sqlite":
		return openSQLite(ctx, address, at)
	case "memory":
		return dialMemory(address, at)
	case "mongodb":
		return openMongo(ctx, address, at)
	}
	return nil, fmt.Errorf("store %q: want sqlite, memory or mongodb", kind)
}
