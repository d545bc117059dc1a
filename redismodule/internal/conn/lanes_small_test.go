package conn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// endless cannot be cancelled, and has a deadline all the same.
type endless struct {
	context.Context
	until time.Time
}

func (e endless) Deadline() (time.Time, bool) { return e.until, true }
func (e endless) Done() <-chan struct{}       { return nil }
func (e endless) Err() error {
	if time.Now().After(e.until) {
		return context.DeadlineExceeded
	}
	return nil
}

func TestASmallRequestWaitsNoLongerThanItsContextAndItsTimeout(t *testing.T) {
	small := Op{Name: "small", Key: "k", Small: true}
	for _, end := range []struct {
		name     string
		ctx      func(t *testing.T) context.Context
		cause    error
		patience time.Duration
	}{
		{"a deadline", func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			t.Cleanup(cancel)
			return ctx
		}, context.DeadlineExceeded, later},
		{"a deadline that does not end it", func(t *testing.T) context.Context {
			return endless{t.Context(), time.Now().Add(soon)}
		}, context.DeadlineExceeded, later},
		{"a cancel", func(t *testing.T) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(soon, cancel)
			return ctx
		}, context.Canceled, later},
		{"no end", func(*testing.T) context.Context { return context.Background() }, os.ErrDeadlineExceeded, later},
		{"a full pool", func(*testing.T) context.Context { return context.Background() }, redis.ErrPoolTimeout, soon},
		{"a full pool before a deadline", func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), later)
			t.Cleanup(cancel)
			return ctx
		}, redis.ErrPoolTimeout, soon},
	} {
		t.Run(end.name, func(t *testing.T) {
			c := newCountedOf(t, 5*soon, 1)
			if err := c.set(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.lanes.waitIdle(t)
			c.lanes.patience = end.patience
			if !c.lanes.enter() {
				t.Fatal("the lane is not free")
			}
			defer c.lanes.exit()
			began := time.Now()
			_, err := c.Do(end.ctx(t), small, "SET", "k", "w")
			if !errors.Is(err, semantic.ErrUnavailable) || !errors.Is(err, end.cause) {
				t.Errorf("%v, want it unavailable because of %v", err, end.cause)
			}
			if d := time.Since(began); d > later/2 {
				t.Errorf("after %v", d)
			}
		})
	}
}

// What has found a lane is not dismissed for having waited for one.
func TestARequestThatFoundALaneInTimeWaitsForItsReply(t *testing.T) {
	c, trap, _ := occupiedFor(t, 10*soon)
	began := time.Now()
	waited := c.start(t, t.Context(), "SET", "k", "v")
	held := c.proxy.HoldNextReply(testkit.CommandContaining("k"))
	trap.Disarm()
	<-held.Hit()
	<-time.After(time.Until(began.Add(12 * soon)))
	held.Disarm()
	if o := <-waited; o.err != nil {
		t.Error(o.err)
	}
}

// A small request's lane is left to those that wait, which then go together.
func TestASmallRequestLeavesItsLaneToTheNext(t *testing.T) {
	c := newCountedOf(t, later, 1)
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.proxy.ResetCounts()
	small := Op{Name: "small", Key: "k", Small: true}
	trap := c.proxy.HoldNextReply(nil)
	var all sync.WaitGroup
	call := func(text string) {
		all.Go(func() {
			if reply, err := c.Do(t.Context(), small, "ECHO", text); err != nil || reply != text {
				t.Errorf("%q: %v, %v", text, reply, err)
			}
		})
	}
	call("first")
	<-trap.Hit()
	for i := range 5 {
		call(fmt.Sprint(i))
	}
	c.waits(t, 5)
	if n := c.proxy.Commands(); n != 1 {
		t.Errorf("%d commands sent by one lane", n)
	}
	trap.Disarm()
	all.Wait()
}
