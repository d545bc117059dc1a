package testkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// broadcastHandlerCases are the promises about handlers and the end of subscriptions.
func broadcastHandlerCases() []broadcastCase {
	return []broadcastCase{
		{Name: "after Unsubscribe returned the handler never runs again", Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 2)
			in := newInbox()
			s := subscribe(t, clients[0], "c", in.handle)
			stays := subscribeInbox(t, clients[0], "c")
			var publisher sync.WaitGroup
			publisher.Go(func() {
				for i := range 100 {
					if err := clients[1].Publish(t.Context(), "c", fmt.Sprint(i)); err != nil {
						t.Errorf("publish: %v", err)
					}
				}
			})
			in.await(t, "10")
			s.Unsubscribe()
			before := len(in.all())
			publisher.Wait()
			mustPublish(t, clients[1], "c", "end")
			stays.await(t, "end")
			waitUntilAsked(b) // a handler of its own goroutine may be behind
			if after := len(in.all()); after != before {
				t.Errorf("the handler ran %d times more", after-before)
			}
		}},
		{Name: "Unsubscribe waits for a running handler", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			running, release := make(chan struct{}), make(chan struct{})
			var returned atomic.Bool
			s := subscribe(t, c, "c", func(context.Context, semantic.Message) {
				close(running)
				<-release
				returned.Store(true)
			})
			mustPublish(t, c, "c", "m")
			awaitEnd(t, running, "the handler to run")
			calling, unsubscribed := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(unsubscribed)
				close(calling)
				s.Unsubscribe()
				if !returned.Load() {
					t.Errorf("Unsubscribe returned while the handler was running")
				}
			}()
			<-calling
			waitUntilAsked(b)
			close(release)
			awaitEnd(t, unsubscribed, "Unsubscribe")
		}},
		{Name: "Unsubscribe from inside the handler does not wait for itself and is its last call", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			var s semantic.Subscription
			ready, inside := make(chan struct{}), make(chan struct{})
			var calls atomic.Int32
			s = subscribe(t, c, "c", func(context.Context, semantic.Message) {
				<-ready
				calls.Add(1)
				s.Unsubscribe()
				s.Unsubscribe()
				close(inside)
			})
			end := subscribeInbox(t, c, "c")
			close(ready)
			mustPublish(t, c, "c", "1")
			mustPublish(t, c, "c", "2")
			awaitEnd(t, inside, "Unsubscribe inside the handler")
			mustPublish(t, c, "c", "end")
			end.await(t, "end")
			s.Unsubscribe()
			if n := calls.Load(); n != 1 {
				t.Errorf("the handler ran %d times", n)
			}
		}},
		{Name: "Unsubscribe may be called many times and at once", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			s := subscribe(t, c, "c", func(context.Context, semantic.Message) {})
			var all sync.WaitGroup
			for range 10 {
				all.Go(s.Unsubscribe)
			}
			all.Wait()
			in := subscribeInbox(t, c, "c")
			mustPublish(t, c, "c", "m")
			in.await(t, "m")
		}},
		{Name: "the handler's context ends with the subscription", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			contexts := make(chan context.Context, 1)
			ended := make(chan struct{})
			s := subscribe(t, c, "c", func(ctx context.Context, _ semantic.Message) {
				contexts <- ctx
				select {
				case <-ctx.Done():
					close(ended)
				case <-time.After(patience(t)):
				}
			})
			mustPublish(t, c, "c", "m")
			ctx := awaitEnd(t, contexts, "the handler to run")
			if ctx.Err() != nil {
				t.Errorf("the context had ended before the subscription")
			}
			s.Unsubscribe()
			select {
			case <-ended:
			default:
				t.Errorf("the context did not end with the subscription")
			}
		}},
		{Name: "a handler that blocks delays no other subscription", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			release := make(chan struct{})
			var once sync.Once
			free := func() { once.Do(func() { close(release) }) }
			defer free() // before the subscriptions end
			blocked := make(chan struct{}, 100)
			subscribe(t, c, "c", func(context.Context, semantic.Message) { blocked <- struct{}{}; <-release })
			same, other := subscribeInbox(t, c, "c"), subscribeInbox(t, c, "d")
			for i := range 20 {
				mustPublish(t, c, "c", fmt.Sprint(i))
				mustPublish(t, c, "d", fmt.Sprint(i))
			}
			awaitEnd(t, blocked, "the handler to block")
			same.await(t, "19")
			other.await(t, "19")
			late := subscribeInbox(t, c, "c")
			mustPublish(t, c, "c", "late")
			late.await(t, "late")
		}},
		{Name: "what a full queue drops is counted and told as a gap in its place", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			in := newInbox()
			release, first := make(chan struct{}), make(chan struct{})
			var once sync.Once
			free := func() { once.Do(func() { close(release) }) }
			subscribe(t, c, "c", func(ctx context.Context, m semantic.Message) {
				if string(m.Payload) == `"0"` {
					close(first)
					<-release
				}
				in.handle(ctx, m)
			}, semantic.WithQueue(3), semantic.WithGapHandler(in.gap))
			defer free() // before the subscriptions end
			marker := subscribeInbox(t, c, "marker")
			mustPublish(t, c, "c", "0")
			awaitEnd(t, first, "the handler to block")
			for i := 1; i < 10; i++ {
				mustPublish(t, c, "c", fmt.Sprint(i))
			}
			mustPublish(t, c, "marker", "all are queued or dropped")
			marker.await(t, "all are queued or dropped")
			free()
			in.await(t, "gap:"+string(semantic.GapOverflow))
			mustPublish(t, c, "c", "after")
			in.await(t, "after")
			if got, want := in.all(), []string{"0", "1", "2", "3", "gap:OVERFLOW", "after"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if gaps := in.allGaps(); len(gaps) != 1 || gaps[0].Missed != 6 || gaps[0].Channel != "c" || gaps[0].Duration != 0 {
				t.Errorf("gaps %+v, want one on channel c of 6 missed messages", gaps)
			}
		}},
		{Name: "a panic costs a handler that message only, and nobody else anything", Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			in, others := newInbox(), subscribeInbox(t, c, "c")
			subscribe(t, c, "c", func(ctx context.Context, m semantic.Message) {
				if string(m.Payload) == `"bad"` {
					panic("handler does not like it")
				}
				in.handle(ctx, m)
			})
			for _, s := range []string{"1", "bad", "2", "bad", "3"} {
				mustPublish(t, c, "c", s)
			}
			in.await(t, "3")
			others.await(t, "3")
			if got := in.all(); !slices.Equal(got, []string{"1", "2", "3"}) {
				t.Errorf("got %q", got)
			}
			if got := others.all(); len(got) != 5 {
				t.Errorf("the other subscription got %q", got)
			}
		}},
	}
}

// broadcastFaultCases are the promises about lost links.
func broadcastFaultCases() []broadcastCase {
	return []broadcastCase{
		{Name: "a lost link is told as a gap before the messages that follow it", Needs: NeedFaults, Run: func(t T, b broadcastBackend) {
			clients := b.New(t, 2)
			c, d := subscribeInbox(t, clients[0], "c"), subscribeInbox(t, clients[1], "d")
			mustPublish(t, clients[0], "c", "before")
			mustPublish(t, clients[0], "d", "before")
			c.await(t, "before")
			d.await(t, "before")
			heal := b.Fault(t, FaultDown)
			b.Advance(span)
			heal()
			for _, in := range []*inbox{c, d} {
				in.await(t, "gap:"+string(semantic.GapLinkLost))
			}
			publishAgain(t, clients[0], "c", "after")
			publishAgain(t, clients[0], "d", "after")
			for channel, in := range map[string]*inbox{"c": c, "d": d} {
				in.await(t, "after")
				if got := in.all(); !slices.Equal(got, []string{"before", "gap:LINK_LOST", "after"}) {
					t.Errorf("channel %s got %q", channel, got)
				}
				for _, g := range in.allGaps() {
					if g.Channel != channel || g.Duration < span/2 || g.Missed != 0 {
						t.Errorf("channel %s was told %+v after about %v", channel, g, span)
					}
				}
			}
		}},
		{Name: "a publish while the backend is down is unavailable and never delivered", Needs: NeedFaults, Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			in := subscribeInbox(t, c, "c")
			mustPublish(t, c, "c", "before")
			in.await(t, "before")
			heal := b.Fault(t, FaultDown)
			// A link that breaks under the first call may leave it unknown; from then
			// on there is none.
			if err := c.Publish(t.Context(), "c", "lost"); err == nil {
				t.Errorf("publish while down succeeded")
			}
			if err := c.Publish(t.Context(), "c", "lost"); !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("publish while down: %v, want ErrUnavailable", err)
			}
			heal()
			in.await(t, "gap:"+string(semantic.GapLinkLost))
			waitUntilAsked(b) // a delivery that was kept for later would come now
			publishAgain(t, c, "c", "after")
			in.await(t, "after")
			if got := in.all(); slices.Contains(got, "lost") {
				t.Errorf("got %q", got)
			}
		}},
		{Name: "a subscribe while the backend is down is unavailable and leaves nothing", Needs: NeedFaults, Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			heal := b.Fault(t, FaultDown)
			ghost := newInbox()
			if _, err := c.Subscribe(t.Context(), "c", ghost.handle, semantic.WithGapHandler(ghost.gap)); !errors.Is(err, semantic.ErrUnavailable) {
				t.Errorf("subscribe while down: %v, want ErrUnavailable", err)
			}
			heal()
			in := newInbox()
			if !eventually(func() bool {
				s, err := c.Subscribe(t.Context(), "c", in.handle)
				if err == nil {
					t.Cleanup(s.Unsubscribe)
				}
				return err == nil
			}) {
				t.Fatalf("subscribe after the outage does not work")
			}
			publishAgain(t, c, "c", "m")
			in.await(t, "m")
			waitUntilAsked(b)
			publishAgain(t, c, "c", "n")
			in.await(t, "n")
			if got := ghost.all(); len(got) > 0 {
				t.Errorf("the failed subscription got %q", got)
			}
		}},
		{Name: "a publish whose reply is lost is unknown and delivered at most once", Needs: NeedFaults, Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			in := subscribeInbox(t, c, "c")
			mustPublish(t, c, "c", "before")
			heal := b.Fault(t, FaultLoseReply)
			if err := c.Publish(t.Context(), "c", "m"); !errors.Is(err, semantic.ErrUnknown) {
				t.Errorf("publish: %v, want ErrUnknown", err)
			}
			heal()
			publishAgain(t, c, "c", "after")
			in.await(t, "after")
			if got := strings.Join(in.all(), " "); strings.Count(got, "m") > 1 {
				t.Errorf("got %q", got)
			}
		}},
		{Name: "calls on a silent link end with their context", Needs: NeedFaults, Run: func(t T, b broadcastBackend) {
			c := b.New(t, 1)[0]
			in := subscribeInbox(t, c, "c")
			mustPublish(t, c, "c", "before")
			heal := b.Fault(t, FaultHang)
			defer heal()
			for _, call := range []func(ctx context.Context) error{
				func(ctx context.Context) error { return c.Publish(ctx, "c", "m") },
				func(ctx context.Context) error { _, err := c.Subscribe(ctx, "new", newInbox().handle); return err },
			} {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- call(ctx) }()
				waitUntilAsked(b)
				cancel()
				if err := awaitEnd(t, ended, "a cancelled call"); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled call: %v", err)
				}
			}
			heal()
			in.await(t, "gap:"+string(semantic.GapLinkLost))
		}},
	}
}

// publishAgain publishes as soon as a healed backend lets it.
func publishAgain(t T, c semantic.BroadcastChannel, channel string, payload any) {
	t.Helper()
	var err error
	if !eventually(func() bool { err = c.Publish(t.Context(), channel, payload); return err == nil }) {
		t.Fatalf("publish on %q does not work again: %v", channel, err)
	}
}
