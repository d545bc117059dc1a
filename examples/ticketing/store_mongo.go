package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// mongoStore keeps an order's result and its outbox event in one document, so that the
// atomicity of a single document is enough. A seat is a document whose _id is the seat.
type mongoStore struct {
	client        *mongo.Client
	orders, seats *mongo.Collection
	at            hook
}

type mongoOrder struct {
	ID     string      `bson:"_id"`
	Key    string      `bson:"key"`
	Buyer  string      `bson:"buyer"`
	Seat   string      `bson:"seat"`
	Amount int64       `bson:"amount"`
	State  State       `bson:"state"`
	Charge string      `bson:"charge"`
	Outbox *mongoEvent `bson:"outbox,omitempty"`
}

type mongoEvent struct {
	ID           string `bson:"id"`
	Published    bool   `bson:"published"`
	ClaimedUntil int64  `bson:"claimed_until"` // ms since 1970
}

func (m mongoOrder) order() Order {
	return Order{ID: m.ID, State: m.State, Charge: m.Charge, Request: Request{Key: m.Key, Buyer: m.Buyer, Seat: m.Seat, AmountMinor: m.Amount}}
}

func openMongo(_ context.Context, uri string, at hook) (*mongoStore, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetTimeout(10 * time.Second).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return nil, fmt.Errorf("mongodb: %w", err)
	}
	db := client.Database("ticketing")
	return &mongoStore{client: client, orders: db.Collection("orders"), seats: db.Collection("seats"), at: at}, nil
}

func (s *mongoStore) Close() error { return s.client.Disconnect(context.Background()) }

// insertOnce inserts unless the _id exists.
func insertOnce(ctx context.Context, c *mongo.Collection, document any) error {
	if _, err := c.InsertOne(ctx, document); err != nil && !mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("mongodb: insert into %s: %w", c.Name(), err)
	}
	return nil
}

func (s *mongoStore) Prepare(ctx context.Context, r Request) (Order, error) {
	id := orderID(r.Key)
	order := mongoOrder{ID: id, Key: r.Key, Buyer: r.Buyer, Seat: r.Seat, Amount: r.AmountMinor, State: Held}
	if err := insertOnce(ctx, s.orders, order); err != nil {
		return Order{}, err
	}
	s.at(pointInPrepare)
	// The _id index is the constraint: one order per seat, whatever the request's key.
	if err := insertOnce(ctx, s.seats, bson.D{{Key: "_id", Value: r.Seat}, {Key: "order", Value: id}}); err != nil {
		return Order{}, err
	}
	var seat struct{ Order string }
	if err := s.seats.FindOne(ctx, bson.D{{Key: "_id", Value: r.Seat}}).Decode(&seat); err != nil {
		return Order{}, fmt.Errorf("mongodb: seat: %w", err)
	}
	if seat.Order != id {
		if _, err := s.orders.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "state", Value: Held}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: Declined}}}}); err != nil {
			return Order{}, fmt.Errorf("mongodb: decline: %w", err)
		}
	}
	return s.Order(ctx, id)
}

func (s *mongoStore) Order(ctx context.Context, id string) (Order, error) {
	var o mongoOrder
	err := s.orders.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&o)
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = errNoOrder
	}
	if err != nil {
		return Order{}, fmt.Errorf("mongodb: order %s: %w", id, err)
	}
	return o.order(), nil
}

func (s *mongoStore) Finish(ctx context.Context, id, charge string) (Order, error) {
	s.at(pointInFinish)
	// One document, one write: the result and its event are there together or not at all.
	_, err := s.orders.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "state", Value: Held}}, bson.D{{Key: "$set", Value: bson.D{
		{Key: "state", Value: Sold}, {Key: "charge", Value: charge}, {Key: "outbox", Value: mongoEvent{ID: eventID(id)}},
	}}})
	if err != nil {
		return Order{}, fmt.Errorf("mongodb: result: %w", err)
	}
	return s.Order(ctx, id)
}

func (s *mongoStore) ClaimEvents(ctx context.Context) ([]Event, error) {
	var events []Event
	for {
		now := time.Now()
		var o mongoOrder
		err := s.orders.FindOneAndUpdate(ctx,
			bson.D{{Key: "outbox.published", Value: false}, {Key: "outbox.claimed_until", Value: bson.D{{Key: "$lte", Value: now.UnixMilli()}}}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "outbox.claimed_until", Value: now.Add(publishLease).UnixMilli()}}}}).Decode(&o)
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return events, nil
		case err != nil:
			return events, fmt.Errorf("mongodb: claim events: %w", err)
		}
		events = append(events, Event{ID: o.Outbox.ID, Order: o.ID, Seat: o.Seat})
	}
}

func (s *mongoStore) MarkPublished(ctx context.Context, id string) error {
	_, err := s.orders.UpdateOne(ctx, bson.D{{Key: "outbox.id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{{Key: "outbox.published", Value: true}}}})
	if err != nil {
		return fmt.Errorf("mongodb: mark event %s: %w", id, err)
	}
	return nil
}

func (s *mongoStore) Census(ctx context.Context, seat string) (Census, error) {
	var c Census
	n, err := s.seats.CountDocuments(ctx, bson.D{{Key: "_id", Value: seat}})
	if err != nil {
		return c, fmt.Errorf("mongodb: census: %w", err)
	}
	c.Seats = int(n)
	found, err := s.orders.Find(ctx, bson.D{{Key: "seat", Value: seat}})
	if err != nil {
		return c, fmt.Errorf("mongodb: census: %w", err)
	}
	var orders []mongoOrder
	if err := found.All(ctx, &orders); err != nil {
		return c, fmt.Errorf("mongodb: census: %w", err)
	}
	for _, o := range orders {
		switch o.State {
		case Sold:
			c.Sold++
		case Declined:
			c.Declined++
		}
		if o.Outbox != nil {
			c.Events++
			if !o.Outbox.Published {
				c.Unpublished++
			}
		}
	}
	return c, nil
}
