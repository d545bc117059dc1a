package testkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// RunBroadcastChannel runs the conformance suite of [semantic.BroadcastChannel] on b.
func RunBroadcastChannel(t *testing.T, b Backend[semantic.BroadcastChannel]) {
	t.Helper()
	runCases(t, b, BroadcastChannelCases())
}

type broadcastCase = Case[semantic.BroadcastChannel]
type broadcastBackend = Backend[semantic.BroadcastChannel]

// BroadcastChannelCases returns the suite's cases.
func BroadcastChannelCases() []broadcastCase {
	return slices.Concat(broadcastDeliveryCases(), broadcastHandlerCases(), broadcastRefusalCases(), broadcastFaultCases())
}

func broadcastDeliveryCases() []broadcastCase {
	return []broadcastCase{
		{Name: "a message reaches every subscription of every client, the sender's own included", Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 3)
			var all []*inbox
			for _, c := range clients {
				all = append(all, subscribeInbox(t, c, "c"), subscribeInbox(t, c, "c"))
			}
			mustPublish(t, clients[1], "c", "m")
			for _, in := range all {
				in.await(t, "m")
			}
		}},
		{Name: "a message says its channel, its payload, its origin and whether it is one's own", Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 2)
			got := make([]chan semantic.Message, 2)
			for i, c := range clients {
				got[i] = make(chan semantic.Message, 1)
				subscribe(t, c, "c", func(_ context.Context, m semantic.Message) { got[i] <- m })
			}
			mustPublish(t, clients[0], "c", map[string]any{"id": 7})
			for i := range clients {
				m := awaitEnd(t, got[i], "the message")
				if m.Channel != "c" || string(m.Payload) != `{"id":7}` || m.Origin == "" || m.Self != (i == 0) {
					t.Errorf("client %d got %+v (payload %s)", i, m, m.Payload)
				}
			}
		}},
		{Name: "messages of a channel arrive in order, once, and one at a time", Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 2)
			var busy atomic.Int32
			in := newInbox()
			subscribe(t, clients[1], "c", func(ctx context.Context, m semantic.Message) {
				if busy.Add(1) > 1 {
					in.add("two handler calls at a time")
				}
				in.handle(ctx, m)
				busy.Add(-1)
			})
			var want []string
			for i := range 200 {
				want = append(want, fmt.Sprint(i))
				mustPublish(t, clients[0], "c", fmt.Sprint(i))
			}
			in.await(t, "199")
			if got := in.all(); !slices.Equal(got, want) {
				t.Errorf("got %v", got)
			}
		}},
		{Name: "channels are apart", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			names := []string{"a", "ab", "a:b", "{a}", "a*", "a b", "ä"}
			var all []*inbox
			for _, name := range names {
				all = append(all, subscribeInbox(t, c, name))
			}
			for _, name := range names {
				mustPublish(t, c, name, "for "+name)
			}
			for i, in := range all {
				mustPublish(t, c, names[i], "end")
				in.await(t, "end")
				if got := in.all(); !slices.Equal(got, []string{"for " + names[i], "end"}) {
					t.Errorf("channel %q got %q", names[i], got)
				}
			}
		}},
		{Name: "SkipSelf leaves out what this client published and nothing else", Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 2)
			in := subscribeInbox(t, clients[0], "c", semantic.SkipSelf())
			mustPublish(t, clients[0], "c", "own")
			mustPublish(t, clients[1], "c", "other's")
			in.await(t, "other's")
			if got := in.all(); len(got) != 1 {
				t.Errorf("got %q, want the other's message only", got)
			}
		}},
		{Name: "every message published after Subscribe returned arrives", Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 2)
			for i := range 20 {
				channel := fmt.Sprint("c", i)
				in := subscribeInbox(t, clients[0], channel)
				mustPublish(t, clients[1], channel, "m")
				in.await(t, "m")
			}
		}},
		{Name: "many callers subscribe, publish and unsubscribe at once", Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 2)
			var all sync.WaitGroup
			for i := range 40 {
				all.Go(func() {
					channel, got := fmt.Sprint("c", i%7), make(chan struct{}, 1000)
					s, err := clients[i%2].Subscribe(t.Context(), channel, func(_ context.Context, m semantic.Message) {
						if string(m.Payload) == fmt.Sprint(i) {
							got <- struct{}{}
						}
					})
					if err != nil {
						t.Errorf("subscribe: %v", err)
						return
					}
					defer s.Unsubscribe()
					if err := clients[(i+1)%2].Publish(t.Context(), channel, i); err != nil {
						t.Errorf("publish: %v", err)
						return
					}
					select {
					case <-got:
					case <-time.After(patience(t)):
						t.Errorf("message %d did not arrive", i)
					}
				})
			}
			all.Wait()
		}},
		{Name: "a typed subscription hands over decoded payloads and sets others aside", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			got, bad := make(chan int, 2), make(chan error, 1)
			s, err := semantic.SubscribeTo(t.Context(), c, "c",
				func(_ context.Context, n int, _ semantic.Message) { got <- n },
				func(_ semantic.Message, err error) { bad <- err })
			if err != nil {
				t.Fatalf("SubscribeTo: %v", err)
			}
			t.Cleanup(s.Unsubscribe)
			mustPublish(t, c, "c", "not a number")
			mustPublish(t, c, "c", 7)
			if n := awaitEnd(t, got, "the number"); n != 7 {
				t.Errorf("got %d", n)
			}
			if err := awaitEnd(t, bad, "the bad one"); !errors.Is(err, semantic.ErrCorrupt) {
				t.Errorf("bad message: %v", err)
			}
		}},
	}
}

func broadcastRefusalCases() []broadcastCase {
	return []broadcastCase{
		{Name: "a payload above the limit is refused and reaches nobody", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			in := subscribeInbox(t, c, "c")
			if err := c.Publish(t.Context(), "c", make([]byte, 16<<20)); !errors.Is(err, semantic.ErrTooLarge) {
				t.Errorf("error %v, want ErrTooLarge", err)
			}
			mustPublish(t, c, "c", strings.Repeat("y", 64<<10))
			mustPublish(t, c, "c", "end")
			in.await(t, "end")
			if got := in.all(); len(got) != 2 || len(got[0]) != 64<<10 {
				t.Errorf("%d messages arrived, want one of 64 KiB and the end", len(got))
			}
		}},
		{Name: "a payload that is not JSON is refused", Run: func(t T, b broadcastBackend) {
			wantArgument(t, b.New(t, 1)[0].Publish(t.Context(), "c", func() {}), "payload")
		}},
		{Name: "arguments out of range are refused by name", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			handler := func(context.Context, semantic.Message) {}
			for _, channel := range []string{"", strings.Repeat("k", semantic.MaxKeyBytes+1), "a\nb", "\xff"} {
				wantArgument(t, c.Publish(t.Context(), channel, 1), "channel")
				_, err := c.Subscribe(t.Context(), channel, handler)
				wantArgument(t, err, "channel")
			}
			_, err := c.Subscribe(t.Context(), "c", nil)
			wantArgument(t, err, "handler")
			for _, n := range []int{0, -1, 1<<20 + 1} {
				_, err := c.Subscribe(t.Context(), "c", handler, semantic.WithQueue(n))
				wantArgument(t, err, "queue")
			}
		}},
		{Name: "after close every method returns ErrClosed and no handler runs", Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 2)
			closer, ok := clients[0].(interface{ Close() })
			if !ok {
				t.Logf("not run: this client has no Close method")
				return
			}
			in, stays := subscribeInbox(t, clients[0], "c"), subscribeInbox(t, clients[1], "c")
			closer.Close()
			if err := clients[0].Publish(t.Context(), "c", 1); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("publish: %v", err)
			}
			if _, err := clients[0].Subscribe(t.Context(), "c", in.handle); !errors.Is(err, semantic.ErrClosed) {
				t.Errorf("subscribe: %v", err)
			}
			mustPublish(t, clients[1], "c", "m")
			stays.await(t, "m")
			if got := in.all(); len(got) != 0 {
				t.Errorf("a closed client got %q", got)
			}
		}},
		{Name: "a context that has ended ends the call before it does anything", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			in := subscribeInbox(t, c, "c")
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := c.Publish(ended, "c", "m"); !errors.Is(err, context.Canceled) || !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("publish: %v, want Canceled and ErrUnavailable", err)
			}
			ghost := newInbox()
			if _, err := c.Subscribe(ended, "c", ghost.handle); !errors.Is(err, context.Canceled) || !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("subscribe: %v, want Canceled and ErrUnavailable", err)
			}
			mustPublish(t, c, "c", "end")
			in.await(t, "end")
			if got := in.all(); len(got) != 1 {
				t.Errorf("got %q", got)
			}
			if got := ghost.all(); len(got) != 0 {
				t.Errorf("a failed Subscribe got %q", got)
			}
		}},
	}
}

// inbox keeps what a handler gets: decoded strings, and "gap:<REASON>".
type inbox struct {
	mu   sync.Mutex
	got  []string
	gaps []semantic.Gap
}

func newInbox() *inbox { return &inbox{} }

func (in *inbox) handle(_ context.Context, m semantic.Message) {
	var s string
	if err := json.Unmarshal(m.Payload, &s); err != nil {
		s = string(m.Payload)
	}
	in.add(s)
}

func (in *inbox) gap(_ context.Context, g semantic.Gap) {
	in.mu.Lock()
	in.gaps = append(in.gaps, g)
	in.mu.Unlock()
	in.add("gap:" + string(g.Reason))
}

func (in *inbox) add(s string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.got = append(in.got, s)
}

func (in *inbox) all() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.got)
}

func (in *inbox) allGaps() []semantic.Gap {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.gaps)
}

func (in *inbox) await(t T, s string) {
	t.Helper()
	for deadline := time.Now().Add(patience(t)); !slices.Contains(in.all(), s); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			got := in.all()
			t.Fatalf("%.40q did not arrive, but %d others: %.200q", s, len(got), got)
		}
	}
}

// patience is how long a case waits for what must come. Where a failure is expected
// there is no point in waiting long for it.
func patience(t T) time.Duration {
	if _, failing := t.(*recorder); failing {
		return 2 * time.Second
	}
	return 20 * time.Second
}

// awaitEnd waits for a goroutine of the case.
func awaitEnd[V any](t T, c <-chan V, what string) (v V) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience(t)):
		t.Fatalf("waited %v for %s", patience(t), what)
	}
	return v
}

// subscribe registers handler until the case ends.
func subscribe(t T, c semantic.BroadcastChannel, channel string, handler semantic.MessageHandler, opts ...semantic.SubscribeOption) semantic.Subscription {
	t.Helper()
	s, err := c.Subscribe(t.Context(), channel, handler, opts...)
	if err != nil {
		t.Fatalf("subscribe %q: %v", channel, err)
	}
	t.Cleanup(s.Unsubscribe)
	return s
}

func subscribeInbox(t T, c semantic.BroadcastChannel, channel string, opts ...semantic.SubscribeOption) *inbox {
	t.Helper()
	in := newInbox()
	subscribe(t, c, channel, in.handle, append(opts, semantic.WithGapHandler(in.gap))...)
	return in
}

func mustPublish(t T, c semantic.BroadcastChannel, channel string, payload any) {
	t.Helper()
	if err := c.Publish(t.Context(), channel, payload); err != nil {
		t.Fatalf("publish on %q: %v", channel, err)
	}
}
