package redismodule

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/testkit"
)

// The promise that near caches stand on: whatever the link does, a subscriber either
// hears every message in order or is told a gap exactly where some are missing.
func TestNothingIsMissedWithoutAGapUnderRandomFaults(t *testing.T) {
	s := testkit.StartRedis(t)
	protocols(t, func(t *testing.T, protocol int) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		dice := rand.New(rand.NewPCG(seed, uint64(protocol)))
		p := testkit.StartProxy(t, s.Addr())
		h, log := testHub(t, p.Addr(), protocol)
		const channels = 5
		ears := make([]*ear, channels)
		for i := range ears {
			ears[i], _ = listen(t, h, fmt.Sprint("c", i))
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var work sync.WaitGroup
		work.Go(func() { // others come and go
			for i := 0; ctx.Err() == nil; i++ {
				short, cancel := context.WithTimeout(ctx, time.Second)
				if leave, err := h.subscribe(short, fmt.Sprint("c", i%(2*channels)), &ear{}); err == nil {
					pause(ctx, time.Millisecond)
					leave()
				}
				cancel()
			}
		})
		counts := make([]int, channels)
		work.Go(func() {
			server := admin(t, s)
			for ctx.Err() == nil {
				for i := range channels {
					if server.Publish(context.Background(), fmt.Sprint("c", i), counts[i]).Err() == nil {
						counts[i]++
					}
				}
			}
		})
		for range 12 {
			pause(t.Context(), time.Duration(dice.IntN(100))*time.Millisecond)
			switch dice.IntN(4) {
			case 0:
				s.Must("CLIENT", "KILL", "TYPE", "pubsub")
			case 1:
				p.Reset()
			case 2:
				heal := p.Inject(nil, testkit.FaultDown)
				pause(t.Context(), time.Duration(dice.IntN(100))*time.Millisecond)
				heal()
			case 3:
				p.BlackHole(true)
				pause(t.Context(), time.Duration(dice.IntN(600))*time.Millisecond)
				p.BlackHole(false)
			}
		}
		stop()
		work.Wait()
		eventually(t, "every channel is confirmed", func() bool { return h.state().Connected })
		server := admin(t, s)
		for i, e := range ears {
			// The last fault may show only now: then messages are lost, with a gap, once more.
			last := counts[i] - 1
			eventually(t, "a last message is heard", func() bool {
				last++
				publish(t, server, fmt.Sprint("c", i), strconv.Itoa(last))
				for range 50 {
					if e.has(strconv.Itoa(last)) {
						return true
					}
					pause(t.Context(), 2*time.Millisecond)
				}
				return false
			})
			checkHistory(t, i, e.all(), last)
		}
		if events := log.all(); len(events)%2 != 0 || len(events) == 0 {
			t.Errorf("outages begin and end: %v", events)
		}
	})
}

func checkHistory(t *testing.T, channel int, heard []string, last int) {
	t.Helper()
	next, gap := 0, false
	for _, h := range heard {
		if h == "gap" {
			gap = true
			continue
		}
		n, err := strconv.Atoi(h)
		switch {
		case err != nil || n < next:
			t.Errorf("channel %d: %q came after %d", channel, h, next-1)
		case n > next && !gap:
			t.Errorf("channel %d: %d to %d are missing without a gap", channel, next, n-1)
		}
		next, gap = n+1, false
	}
	if next != last+1 {
		t.Errorf("channel %d ended with %d of %d", channel, next-1, last)
	}
}

func TestAHubCanBeStartedAndStoppedUnderLoadManyTimes(t *testing.T) {
	s := testkit.StartRedis(t)
	role := testRole(t, s.Addr(), 3)
	server := admin(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var publisher sync.WaitGroup
	publisher.Go(func() {
		for ctx.Err() == nil {
			_ = server.Publish(context.Background(), "c", "m").Err()
		}
	})
	defer publisher.Wait()
	defer stop()
	for i := range 100 {
		h := newHub(role.OpenFeed, testPing, hubEvents{})
		e := &ear{}
		if _, err := h.subscribe(t.Context(), "c", e); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			eventually(t, "heard", func() bool { return e.has("m") })
		}
		if err := h.close(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := len(e.all())
		if i%10 == 0 {
			pause(t.Context(), time.Millisecond)
			if after := len(e.all()); after != n {
				t.Errorf("a closed hub delivered %d messages", after-n)
			}
		}
	}
	eventually(t, "no connection is left", func() bool { return s.Must("CLIENT", "LIST", "TYPE", "pubsub") == "" })
}
