package conn

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/semantic"
)

func TestDirectConnectionsAreAtMostHalfOfThePool(t *testing.T) {
	s := newStraight(t, func(o *Options) { o.PoolSize = 5 })
	release := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		trap, done := s.held(t, t.Context(), "ECHO", "held")
		all.Go(func() {
			<-release
			trap.Disarm()
			if o := <-done; o.err != nil {
				t.Error(o.err)
			}
		})
	}
	s.has(t, 2)
	// Others, small and not, have the rest meanwhile.
	for range 3 {
		s.echoes(t)
		if _, err := s.Do(t.Context(), Op{Name: "library", Key: "k"}, "GET", "k"); err != nil {
			t.Error(err)
		}
	}
	s.has(t, 2)
	close(release)
	all.Wait()
	if n := s.proxy.Connections(); n > 5 {
		t.Errorf("%d connections of a pool of 5", n)
	}
}

func TestAPoolOfOneHasNoDirectConnection(t *testing.T) {
	c := newCountedOf(t, later, 1)
	for range 3 {
		if _, err := c.Do(t.Context(), smallOp, "SET", "k", "v"); err != nil {
			t.Error(err)
		}
	}
	if n := c.directs.count; n != 0 {
		t.Errorf("%d direct connections", n)
	}
}

func TestADirectConnectionThatIsNotNeededGoesBackToThePool(t *testing.T) {
	s := newStraight(t, nil)
	trap, done := s.held(t, t.Context(), "ECHO", "held")
	s.echoes(t)
	trap.Disarm()
	<-done
	s.has(t, 2)
	pool := func() uint32 {
		t.Helper()
		stats, ok := s.Pool()
		if !ok || stats.TotalConns != 2 {
			t.Errorf("%+v, %v, want two connections", stats, ok)
		}
		return stats.IdleConns
	}
	if n := pool(); n != 2 {
		t.Errorf("%d idle connections", n)
	}
	s.directs.idle[0].used = time.Now().Add(-directIdle)
	s.directs.shrink()
	s.has(t, 1)
	if n := pool(); n != 2 {
		t.Errorf("%d idle connections", n)
	}
	// The library can use it.
	if reply, err := s.Do(t.Context(), Op{Name: "library", Key: "k"}, "ECHO", "a"); err != nil || reply != "a" {
		t.Error(reply, err)
	}
	if n := s.proxy.Connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// However idle the service is: the library's own requests may need the place.
func TestDirectConnectionsGoBackWithoutARequest(t *testing.T) {
	library := newClient(Options{Mode: Standalone, Addresses: []string{"127.0.0.1:1"}, PoolSize: 4}, &switchboard{}).(*redis.Client)
	defer func() { _ = library.Close() }()
	synctest.Test(t, func(t *testing.T) {
		ds := directs{limit: 2, count: 2}
		for range 2 {
			ds.opened(library.Conn(), &socket{Conn: pipe(t), board: &switchboard{}})
		}
		<-time.After(directIdle * 3 / 4)
		d, _ := ds.take()
		ds.give(d, nil)
		<-time.After(directIdle)
		if n := ds.spare(); n != 1 || ds.count != 1 {
			t.Errorf("%d idle, %d in all, after one was not used for long", n, ds.count)
		}
		<-time.After(directIdle)
		if n := ds.spare(); n != 0 || ds.count != 0 || ds.sweep != nil {
			t.Errorf("%d idle, %d in all, sweep %v", n, ds.count, ds.sweep)
		}
	})
}

func pipe(t *testing.T) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near
}

func TestCloseWaitsForTheSecondRequestOfAForgottenScript(t *testing.T) {
	s := newStraight(t, nil)
	script := NewScript("script", "return ARGV[1]")
	run := func() (any, error) { return s.Run(t.Context(), smallOp, script, []string{"k"}, "v") }
	if _, err := run(); err != nil {
		t.Fatal(err)
	}
	s.server.Must("SCRIPT", "FLUSH")
	trap := s.proxy.HoldNextReply(nil)
	done := make(chan outcome, 1)
	go func() {
		reply, err := run()
		done <- outcome{reply, err}
	}()
	<-trap.Hit()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	for { // until it refuses calls
		if _, err := s.small(t.Context(), "PING"); errors.Is(err, semantic.ErrClosed) {
			break
		}
	}
	trap.Disarm()
	if o := <-done; o.err != nil || o.reply != "v" {
		t.Error(o.reply, o.err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestADirectConnectionThatCannotBeOpenedLeavesItsPlace(t *testing.T) {
	s := newStraight(t, nil)
	s.proxy.Refuse(true)
	s.proxy.Reset()
	for range 5 {
		if _, err := s.small(t.Context(), "SET", "k", "v"); !errors.Is(err, semantic.ErrUnavailable) {
			t.Error(err)
		}
		s.has(t, 0)
	}
	s.proxy.Refuse(false)
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		_, err := s.small(t.Context(), "SET", "k", "v")
		if err == nil {
			break
		}
		if time.Since(began) > later {
			t.Fatal(err)
		}
	}
	s.has(t, 1)
}

func TestCloseEndsDirectConnections(t *testing.T) {
	s := newStraight(t, nil)
	trap, done := s.held(t, t.Context(), "ECHO", "held")
	s.echoes(t) // on a second one, idle now
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if o := <-done; !errors.Is(o.err, semantic.ErrUnknown) {
		t.Error(o.reply, o.err)
	}
	trap.Disarm()
	s.has(t, 0)
	if _, err := s.small(t.Context(), "ECHO", "a"); !errors.Is(err, semantic.ErrClosed) {
		t.Error(err)
	}
	for began := time.Now(); s.proxy.Connections() > 0; <-time.After(time.Millisecond) {
		if time.Since(began) > later/2 {
			t.Fatalf("%d connections after Close", s.proxy.Connections())
		}
	}
}

func TestCloseWaitsForADirectRequest(t *testing.T) {
	s := newStraight(t, nil)
	trap, done := s.held(t, t.Context(), "ECHO", "held")
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Errorf("closed before the reply: %v", err)
	case <-time.After(soon):
	}
	trap.Disarm()
	if o := <-done; o.err != nil || o.reply != "held" {
		t.Error(o.reply, o.err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	s.has(t, 0)
}
