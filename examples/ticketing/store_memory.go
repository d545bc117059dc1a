package main

import (
	"context"
	"fmt"
	"net"
	"net/rpc"
	"sync"
	"time"
)

// memoryStore is a database in memory. It lives in the parent process, which serves it
// to the sales over a socket: they die, it does not.
type memoryStore struct {
	mu     sync.Mutex
	orders map[string]*Order
	seats  map[string]string // seat → order
	outbox map[string]*memoryEvent
}

type memoryEvent struct {
	Event
	published    bool
	claimedUntil time.Time
}

func newMemoryStore() *memoryStore {
	return &memoryStore{orders: map[string]*Order{}, seats: map[string]string{}, outbox: map[string]*memoryEvent{}}
}

// MemoryServer is the store as net/rpc wants it: a method for each call, one mutex for
// a transaction.
type MemoryServer struct{ store *memoryStore }

// Prepare is [Durable.Prepare].
func (m *MemoryServer) Prepare(r Request, order *Order) error {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	id := orderID(r.Key)
	o := s.orders[id]
	if o == nil {
		o = &Order{ID: id, Request: r, State: Held}
		s.orders[id] = o
	}
	if _, taken := s.seats[o.Request.Seat]; !taken {
		s.seats[o.Request.Seat] = id
	}
	if o.State == Held && s.seats[o.Request.Seat] != id {
		o.State = Declined
	}
	*order = *o
	return nil
}

// Order is [Durable.Order].
func (m *MemoryServer) Order(id string, order *Order) error {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[id]
	if o == nil {
		return fmt.Errorf("memory: order %s: %w", id, errNoOrder)
	}
	*order = *o
	return nil
}

// FinishCall are the arguments of Finish.
type FinishCall struct{ ID, Charge string }

// Finish is [Durable.Finish].
func (m *MemoryServer) Finish(c FinishCall, order *Order) error {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[c.ID]
	if o == nil {
		return fmt.Errorf("memory: order %s: %w", c.ID, errNoOrder)
	}
	if o.State == Held {
		o.State, o.Charge = Sold, c.Charge
		e := Event{ID: eventID(o.ID), Order: o.ID, Seat: o.Request.Seat}
		s.outbox[e.ID] = &memoryEvent{Event: e}
	}
	*order = *o
	return nil
}

// ClaimEvents is [Durable.ClaimEvents].
func (m *MemoryServer) ClaimEvents(_ struct{}, events *[]Event) error {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, e := range s.outbox {
		if !e.published && !e.claimedUntil.After(now) {
			e.claimedUntil = now.Add(publishLease)
			*events = append(*events, e.Event)
		}
	}
	return nil
}

// MarkPublished is [Durable.MarkPublished].
func (m *MemoryServer) MarkPublished(id string, _ *struct{}) error {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.outbox[id]; e != nil {
		e.published = true
	}
	return nil
}

// Census is [Durable.Census].
func (m *MemoryServer) Census(seat string, c *Census) error {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.seats[seat]; taken {
		c.Seats++
	}
	for _, o := range s.orders {
		switch {
		case o.Request.Seat != seat:
		case o.State == Sold:
			c.Sold++
		case o.State == Declined:
			c.Declined++
		}
	}
	for _, e := range s.outbox {
		if e.Seat == seat {
			c.Events++
			if !e.published {
				c.Unpublished++
			}
		}
	}
	return nil
}

// serveMemory serves a new store on a free port until l is closed.
func serveMemory() (l net.Listener, err error) {
	server := rpc.NewServer()
	if err := server.RegisterName("Memory", &MemoryServer{newMemoryStore()}); err != nil {
		return nil, err
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the listener was closed
			}
			go server.ServeConn(c) // ends with its sale
		}
	}()
	return l, nil
}

// memoryClient is the store as a sale sees it.
type memoryClient struct {
	client *rpc.Client
	at     hook
}

func dialMemory(address string, at hook) (*memoryClient, error) {
	client, err := rpc.Dial("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("memory store: %w", err)
	}
	return &memoryClient{client, at}, nil
}

func (c *memoryClient) Close() error { return c.client.Close() }

func (c *memoryClient) Prepare(_ context.Context, r Request) (o Order, err error) {
	c.at(pointInPrepare)
	err = c.client.Call("Memory.Prepare", r, &o)
	return o, err
}

func (c *memoryClient) Order(_ context.Context, id string) (o Order, err error) {
	err = c.client.Call("Memory.Order", id, &o)
	return o, err
}

func (c *memoryClient) Finish(_ context.Context, id, charge string) (o Order, err error) {
	c.at(pointInFinish)
	err = c.client.Call("Memory.Finish", FinishCall{id, charge}, &o)
	return o, err
}

func (c *memoryClient) ClaimEvents(context.Context) (events []Event, err error) {
	err = c.client.Call("Memory.ClaimEvents", struct{}{}, &events)
	return events, err
}

func (c *memoryClient) MarkPublished(_ context.Context, id string) error {
	return c.client.Call("Memory.MarkPublished", id, &struct{}{})
}

func (c *memoryClient) Census(_ context.Context, seat string) (census Census, err error) {
	err = c.client.Call("Memory.Census", seat, &census)
	return census, err
}
