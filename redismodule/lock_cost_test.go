package redismodule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// openBehindProxy opens one replica's services behind a proxy that counts.
func openBehindProxy(t *testing.T) (*Services, *testkit.Proxy, *testkit.RedisServer) {
	t.Helper()
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	return openServices(t, 1, Config{URL: proxy.URL()}, nil)[0], proxy, server
}

func TestALockCycleCostsTwoRoundTrips(t *testing.T) {
	s, proxy, _ := openBehindProxy(t)
	const cycles = 50
	proxy.ResetCounts()
	for i := range cycles {
		key := fmt.Sprint("k", i%3)
		s.Lock.Release(t.Context(), key, mustHold(t, s.Lock, key).Token)
	}
	if n := proxy.Commands(); n != 2*cycles {
		t.Errorf("%d cycles took %d round trips, want %d", cycles, n, 2*cycles)
	}
}

func TestALockCycleAllocatesAtMostThirtyTimes(t *testing.T) {
	s := openServices(t, 1, Config{URL: testkit.StartRedis(t).URL()}, nil)[0]
	for name, ctx := range map[string]context.Context{"has no end": context.Background(), "may be cancelled": t.Context()} {
		n := testing.AllocsPerRun(500, func() {
			claim, err := s.Lock.Acquire(ctx, "k", time.Minute)
			if err != nil || !claim.Acquired {
				t.Errorf("%+v, %v", claim, err)
			}
			s.Lock.Release(ctx, "k", claim.Token)
		})
		t.Logf("%s: %.0f", name, n)
		if n > 30 {
			t.Errorf("with a context that %s: %.0f allocations", name, n)
		}
	}
}

func TestALeaseVerbCostsOneRoundTrip(t *testing.T) {
	s, proxy, _ := openBehindProxy(t)
	proxy.ResetCounts()
	_, _ = s.Lease.Claim(t.Context(), "k", "a", time.Minute)
	_, _ = s.Lease.TakeOver(t.Context(), "k", "b", time.Minute)
	s.Lease.Release(t.Context(), "k", "b")
	if n := proxy.Commands(); n != 3 {
		t.Errorf("3 verbs took %d round trips", n)
	}
}

// redsync v4.14.0 was retracted for scripts that were never found by their digest.
func TestAServerStartCostsAtMostOneNOSCRIPTForEachScript(t *testing.T) {
	s, proxy, server := openBehindProxy(t)
	verbs := func() {
		for range 3 {
			s.Lock.Release(t.Context(), "k", mustHold(t, s.Lock, "k").Token)
			_, _ = s.Lease.Claim(t.Context(), "k", "a", time.Minute)
			s.Lease.Release(t.Context(), "k", "a")
		}
	}
	verbs()
	if n := proxy.ErrorReplies("NOSCRIPT"); n != 0 {
		t.Errorf("%d NOSCRIPT on a fresh client, want none", n)
	}
	server.Must("SCRIPT", "FLUSH")
	verbs()
	if n := proxy.ErrorReplies("NOSCRIPT"); n > 4 {
		t.Errorf("%d NOSCRIPT of 4 scripts after the server forgot them, want one each", n)
	}
}

// However many callers there are when a server has started anew, none is refused: those
// that were busy with the old one, and those that come all at once after an idle time.
func TestCallersAtOnceAreNotToldThatTheServerHasStarted(t *testing.T) {
	for _, busy := range []bool{false, true} {
		for _, callers := range []int{4, 64} {
			t.Run(fmt.Sprintf("busy %v, %d callers", busy, callers), func(t *testing.T) {
				server := testkit.StartRedis(t)
				s := openServices(t, 1, Config{URL: server.URL()}, nil)[0]
				var done atomic.Int64
				cycle := func(i int) {
					key := fmt.Sprint("k", i)
					if claim, err := s.Lock.Acquire(t.Context(), key, time.Minute); err == nil {
						s.Lock.Release(t.Context(), key, claim.Token)
						done.Add(1)
					}
				}
				atOnce := func(wg *sync.WaitGroup, f func(i int)) {
					for i := range callers {
						wg.Go(func() { f(i) })
					}
				}
				var all sync.WaitGroup
				atOnce(&all, cycle)
				all.Wait()
				if busy {
					stop := make(chan struct{})
					atOnce(&all, func(i int) {
						for {
							select {
							case <-stop:
								return
							default:
								cycle(i)
							}
						}
					})
					server.Restart()
					before := done.Load()
					eventually(t, "all are busy again", func() bool { return done.Load() > before+int64(20*callers) })
					close(stop)
				} else {
					server.Restart()
					atOnce(&all, cycle)
				}
				all.Wait()
				stats := fmt.Sprint(server.Must("INFO", "errorstats"), server.Must("INFO", "commandstats"))
				if strings.Contains(stats, "NOSCRIPT") || busy && !strings.Contains(stats, "cmdstat_evalsha") {
					t.Errorf("want scripts by their digests, none refused:\n%s", stats)
				}
			})
		}
	}
}

// go-redis ignores a cancel in flight; redsync cleans up with the dead context and loses
// its error.
func TestCancellingMidAcquireReturnsAtOnceAndLeavesNoKey(t *testing.T) {
	for name, trouble := range map[string]func(p *testkit.Proxy) (heal func()){
		"the link is a black hole": func(p *testkit.Proxy) func() {
			p.BlackHole(true)
			return func() { p.BlackHole(false) }
		},
		"the reply never comes":  func(p *testkit.Proxy) func() { return p.MuteNextReply(nil).Disarm },
		"the request comes late": func(p *testkit.Proxy) func() { return p.HoldNextRequest(nil).Disarm },
	} {
		t.Run(name, func(t *testing.T) {
			s, proxy, server := openBehindProxy(t)
			s.Lock.Release(t.Context(), "warm", mustHold(t, s.Lock, "warm").Token)
			heal := trouble(proxy)
			ctx, cancel := context.WithCancel(t.Context())
			type answer struct {
				claim semantic.LockClaim
				err   error
				at    time.Time
			}
			got := make(chan answer, 1)
			go func() {
				claim, err := s.Lock.Acquire(ctx, "k", time.Minute)
				got <- answer{claim, err, time.Now()}
			}()
			pause(t.Context(), 50*time.Millisecond) // it is in flight
			cancelled := time.Now()
			cancel()
			a := <-got
			if a.claim.Acquired || !errors.Is(a.err, context.Canceled) {
				t.Errorf("cancelled acquire: %+v, %v, want context.Canceled", a.claim, a.err)
			}
			if took := a.at.Sub(cancelled); took > time.Second { // 50 ms on a machine that is not busy
				t.Errorf("a cancel took %v", took)
			} else {
				t.Logf("a cancel took %v", took)
			}
			heal()
			s.Lock.compensations.Wait()
			if left := server.Must("EXISTS", "coord:lock:{k}"); left != int64(0) {
				t.Error("the cancelled acquire left its key behind")
			}
		})
	}
}

// A socket that worked for a cancelled call must not end the next call it works for.
func TestACancelHarmsNoOtherCall(t *testing.T) {
	s, _, _ := openBehindProxy(t)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if w%2 == 0 {
					go cancel() // now, or while it is in flight, or right after it
				}
				_, err := s.Lease.Claim(ctx, fmt.Sprint("k", w), "a", time.Minute)
				if err != nil && (w%2 == 1 || !errors.Is(err, context.Canceled)) {
					t.Errorf("worker %d, call %d: %v", w, i, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

func TestAHundredStartsAndStopsUnderLoadLeaveNothing(t *testing.T) {
	server := testkit.StartRedis(t)
	for i := range 100 {
		s, err := Open(Config{URL: server.URL(), InstanceID: fmt.Sprint("cycle-", i)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		begun := make(chan struct{}, 3)
		for w := range 3 {
			all.Go(func() {
				for n := 0; ; n++ {
					var err error
					switch w {
					case 0:
						_, err = s.Lock.WithLock(t.Context(), "load", time.Minute, func(context.Context) error { return nil })
					case 1:
						_, err = s.Lock.Acquire(t.Context(), "load", time.Minute, semantic.WithMinHold(time.Millisecond), semantic.WithWait(time.Minute))
					default:
						_, err = s.Lease.Hold(t.Context(), "load", fmt.Sprint(i), time.Minute, func(context.Context) error { return nil })
					}
					if n == 0 {
						begun <- struct{}{}
					}
					if err != nil {
						if !errors.Is(err, semantic.ErrClosed) && !errors.Is(err, semantic.ErrUnknown) {
							t.Errorf("cycle %d, worker %d: %v, want ErrClosed", i, w, err)
						}
						return
					}
				}
			})
		}
		<-begun
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := s.Close(ctx); err != nil {
			t.Errorf("cycle %d: close: %v", i, err)
		}
		cancel()
		all.Wait()
		server.Must("FLUSHALL")
	}
	// goleak in TestMain judges the goroutines.
}
