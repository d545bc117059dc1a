package testkit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func broadcastDouble(clock semantic.Clock, advance func(time.Duration)) testkit.Backend[semantic.BroadcastChannel] {
	var backend *testkit.BroadcastBackend
	return testkit.Backend[semantic.BroadcastChannel]{
		New: func(t testkit.T, n int) []semantic.BroadcastChannel {
			backend = testkit.NewBroadcastBackend(clock)
			var cs []semantic.BroadcastChannel
			for i := range n {
				c := backend.Client(fmt.Sprint("replica-", i))
				t.Cleanup(c.Close)
				cs = append(cs, c)
			}
			return cs
		},
		Advance: advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return backend.Inject(f) },
	}
}

func TestBroadcastChannelDouble(t *testing.T) {
	clock := testkit.NewClock()
	testkit.RunBroadcastChannel(t, broadcastDouble(clock, clock.Advance))
}

func TestBroadcastChannelDoubleOnSystemClock(t *testing.T) {
	testkit.RunBroadcastChannel(t, broadcastDouble(nil, time.Sleep))
}

func TestBroadcastChannelDoubleIsClosedForGood(t *testing.T) {
	c := testkit.NewBroadcastChannel(nil)
	if _, err := c.Subscribe(t.Context(), "c", func(context.Context, semantic.Message) {}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	if n := c.Backend().Subscribers("c"); n != 0 {
		t.Errorf("%d subscriptions survive Close", n)
	}
	if err := c.Publish(t.Context(), "c", 1); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("publish after Close: %v", err)
	}
	if _, err := c.Subscribe(t.Context(), "c", func(context.Context, semantic.Message) {}); !errors.Is(err, semantic.ErrClosed) {
		t.Errorf("subscribe after Close: %v", err)
	}
}

func ExampleBroadcastBackend() {
	backend := testkit.NewBroadcastBackend(nil)
	a, b := backend.Client("a"), backend.Client("b")
	got := make(chan string)
	s, err := b.Subscribe(context.Background(), "ancestry-invalidate",
		func(_ context.Context, m semantic.Message) { got <- m.Origin + " sent " + string(m.Payload) },
		semantic.WithGapHandler(func(_ context.Context, g semantic.Gap) { got <- "flush after " + string(g.Reason) }))
	if err != nil {
		panic(err)
	}
	defer s.Unsubscribe()

	_ = a.Publish(context.Background(), "ancestry-invalidate", map[string]string{"organizationId": "org-7"})
	fmt.Println(<-got)

	mend := b.Cut()
	_ = a.Publish(context.Background(), "ancestry-invalidate", map[string]string{"organizationId": "org-8"})
	mend()
	fmt.Println(<-got)
	// Output:
	// a sent {"organizationId":"org-7"}
	// flush after LINK_LOST
}
