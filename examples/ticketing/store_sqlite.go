package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "modernc.org/sqlite" // the driver, in Go
)

// sqliteStore keeps everything in one file, with real transactions.
type sqliteStore struct {
	db *sql.DB
	at hook
}

const sqliteSchema = `
CREATE TABLE IF NOT EXISTS orders (
	id TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, buyer TEXT NOT NULL, seat TEXT NOT NULL,
	amount INTEGER NOT NULL, state TEXT NOT NULL, charge TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS seats (seat TEXT PRIMARY KEY, order_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (
	id TEXT PRIMARY KEY, order_id TEXT NOT NULL, seat TEXT NOT NULL,
	published INTEGER NOT NULL DEFAULT 0, claimed_until INTEGER NOT NULL DEFAULT 0);`

func openSQLite(ctx context.Context, path string, at hook) (*sqliteStore, error) {
	// Writers queue up at BEGIN instead of failing in the middle.
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, sqliteSchema); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite schema: %w", err), db.Close())
	}
	return &sqliteStore{db: db, at: at}, nil
}

func (s *sqliteStore) Close() error { return s.db.Close() }

// transaction commits what fn did, or nothing.
func (s *sqliteStore) transaction(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlite: commit: %w", err)
	}
	return nil
}

func (s *sqliteStore) Prepare(ctx context.Context, r Request) (order Order, err error) {
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		id := orderID(r.Key)
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, key, buyer, seat, amount, state) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			id, r.Key, r.Buyer, r.Seat, r.AmountMinor, Held); err != nil {
			return fmt.Errorf("sqlite: order: %w", err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO seats (seat, order_id) VALUES (?, ?) ON CONFLICT DO NOTHING`, r.Seat, id); err != nil {
			return fmt.Errorf("sqlite: seat: %w", err)
		}
		s.at(pointInPrepare)
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = ? WHERE id = ? AND state = ? AND NOT EXISTS
			(SELECT 1 FROM seats WHERE seat = orders.seat AND order_id = orders.id)`, Declined, id, Held); err != nil {
			return fmt.Errorf("sqlite: decline: %w", err)
		}
		order, err = readOrder(ctx, tx, id)
		return err
	})
	return order, err
}

func (s *sqliteStore) Order(ctx context.Context, id string) (order Order, err error) {
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		order, err = readOrder(ctx, tx, id)
		return err
	})
	return order, err
}

func readOrder(ctx context.Context, tx *sql.Tx, id string) (Order, error) {
	var o Order
	err := tx.QueryRowContext(ctx, `SELECT id, key, buyer, seat, amount, state, charge FROM orders WHERE id = ?`, id).
		Scan(&o.ID, &o.Request.Key, &o.Request.Buyer, &o.Request.Seat, &o.Request.AmountMinor, &o.State, &o.Charge)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoOrder
	}
	if err != nil {
		return Order{}, fmt.Errorf("sqlite: order %s: %w", id, err)
	}
	return o, nil
}

func (s *sqliteStore) Finish(ctx context.Context, id, charge string) (order Order, err error) {
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = ?, charge = ? WHERE id = ? AND state = ?`, Sold, charge, id, Held); err != nil {
			return fmt.Errorf("sqlite: result: %w", err)
		}
		s.at(pointInFinish)
		if _, err := tx.ExecContext(ctx, `INSERT INTO outbox (id, order_id, seat) SELECT ?, id, seat FROM orders WHERE id = ? AND state = ? ON CONFLICT DO NOTHING`,
			eventID(id), id, Sold); err != nil {
			return fmt.Errorf("sqlite: outbox: %w", err)
		}
		order, err = readOrder(ctx, tx, id)
		return err
	})
	return order, err
}

func (s *sqliteStore) ClaimEvents(ctx context.Context) (events []Event, err error) {
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		now := time.Now()
		rows, err := tx.QueryContext(ctx, `UPDATE outbox SET claimed_until = ? WHERE published = 0 AND claimed_until <= ? RETURNING id, order_id, seat`,
			now.Add(publishLease).UnixMilli(), now.UnixMilli())
		if err != nil {
			return fmt.Errorf("sqlite: claim events: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			var e Event
			if err := rows.Scan(&e.ID, &e.Order, &e.Seat); err != nil {
				return fmt.Errorf("sqlite: claim events: %w", err)
			}
			events = append(events, e)
		}
		return rows.Err()
	})
	return events, err
}

func (s *sqliteStore) MarkPublished(ctx context.Context, id string) error {
	if _, err := s.db.ExecContext(ctx, `UPDATE outbox SET published = 1 WHERE id = ?`, id); err != nil {
		return fmt.Errorf("sqlite: mark event %s: %w", id, err)
	}
	return nil
}

func (s *sqliteStore) Census(ctx context.Context, seat string) (Census, error) {
	var c Census
	err := s.db.QueryRowContext(ctx, `SELECT
		(SELECT count(*) FROM seats WHERE seat = ?1),
		(SELECT count(*) FROM orders WHERE seat = ?1 AND state = 'sold'),
		(SELECT count(*) FROM orders WHERE seat = ?1 AND state = 'declined'),
		(SELECT count(*) FROM outbox WHERE seat = ?1),
		(SELECT count(*) FROM outbox WHERE seat = ?1 AND published = 0)`, seat).
		Scan(&c.Seats, &c.Sold, &c.Declined, &c.Events, &c.Unpublished)
	if err != nil {
		return Census{}, fmt.Errorf("sqlite: census: %w", err)
	}
	return c, nil
}
