package semantic_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// order keeps what handlers and hooks are told.
type order struct {
	mu  sync.Mutex
	got []string
}

func (o *order) add(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, s)
}

func (o *order) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got)
}

func (o *order) await(t *testing.T, n int) []string {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); len(o.all()) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %d, got %q", n, o.all())
		}
	}
	return o.all()
}

// startDelivery starts a delivery whose handler waits for a step for every message.
func startDelivery(t *testing.T, queue int, hooks semantic.DeliveryHooks) (*semantic.Delivery, *order, chan struct{}) {
	t.Helper()
	o, step := &order{}, make(chan struct{})
	d := semantic.StartDelivery("c", func(ctx context.Context, m semantic.Message) {
		select {
		case <-step:
			o.add(string(m.Payload))
		case <-ctx.Done():
		}
	}, semantic.SubscribeOptions{Queue: queue, OnGap: func(_ context.Context, g semantic.Gap) {
		o.add(fmt.Sprint(g.Reason, " ", g.Missed, " ", g.Duration))
	}}, hooks)
	t.Cleanup(func() {
		d.Close()
		d.Wait()
	})
	return d, o, step
}

func message(payload string) semantic.Message {
	return semantic.Message{Channel: "c", Payload: []byte(payload)}
}

// untilTaken waits until the worker holds the first message, so that the queue is empty.
func untilTaken(t *testing.T, d *semantic.Delivery, step chan<- struct{}, o *order) {
	t.Helper()
	d.Push(message("0"))
	step <- struct{}{}
	o.await(t, 1)
}

func TestGapsStandWhereTheirMessagesWouldHaveAndAreAddedUp(t *testing.T) {
	var overflows, o order
	held := make(chan struct{}) // keeps the worker busy while the queue is filled
	d := semantic.StartDelivery("c", func(_ context.Context, m semantic.Message) { o.add(string(m.Payload)) },
		semantic.SubscribeOptions{Queue: 2, OnGap: func(_ context.Context, g semantic.Gap) {
			o.add(fmt.Sprint(g.Reason, " ", g.Missed, " ", g.Duration))
			<-held
		}}, semantic.DeliveryHooks{Overflow: func(n int) { overflows.add(fmt.Sprint(n)) }})
	t.Cleanup(func() {
		d.Close()
		d.Wait()
	})
	d.Push(message("0"))
	o.await(t, 1)
	d.PushGap(time.Second)
	o.await(t, 2)
	d.Push(message("1"))
	d.Push(message("2"))
	d.Push(message("3")) // two are queued: this one is dropped, and those after it
	d.Push(message("4"))
	d.PushGap(time.Second)
	d.Push(message("5"))
	d.PushGap(2 * time.Second)
	close(held)
	got := strings.Join(o.await(t, 6), ", ")
	if want := "0, LINK_LOST 0 1s, 1, 2, OVERFLOW 3 0s, LINK_LOST 0 3s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if told := overflows.all(); !slices.Equal(told, []string{"1", "2"}) {
		t.Errorf("the overflow hook was told %q, want 1 at once and 2 with the gap", told)
	}
}

func TestADroppedMessageIsCountedEvenIfTheSubscriptionEndsFirst(t *testing.T) {
	var overflows order
	d, o, step := startDelivery(t, 1, semantic.DeliveryHooks{Overflow: func(n int) { overflows.add(fmt.Sprint(n)) }})
	untilTaken(t, d, step, o)
	for range 20 {
		d.Push(message("x"))
	}
	d.Close()
	d.Close()
	d.Wait()
	sum := 0
	for _, s := range overflows.all() {
		var n int
		_, _ = fmt.Sscan(s, &n)
		sum += n
	}
	if sum != 18 && sum != 19 { // one queued, perhaps one with the worker
		t.Errorf("%d of 20 counted as dropped", sum)
	}
	d.Push(message("late"))
	d.PushGap(time.Second)
	if got := o.all(); len(got) != 1 {
		t.Errorf("after Close the handler got %q", got)
	}
}

func TestAHandlerThatEndsItsGoroutineIsCalledAgain(t *testing.T) {
	var panics, got order
	d := semantic.StartDelivery("c", func(_ context.Context, m semantic.Message) {
		if string(m.Payload) == "exit" {
			runtime.Goexit()
		}
		got.add(string(m.Payload))
	}, semantic.SubscribeOptions{Queue: 10, OnGap: func(context.Context, semantic.Gap) { panic("gap handler") }},
		semantic.DeliveryHooks{Panicked: func(err error) { panics.add(err.Error()) }})
	for _, s := range []string{"exit", "1", "exit", "2"} {
		d.Push(message(s))
	}
	d.PushGap(time.Second)
	d.Push(message("3"))
	if all := got.await(t, 3); !slices.Equal(all, []string{"1", "2", "3"}) {
		t.Errorf("got %q", all)
	}
	all := panics.await(t, 3)
	if len(all) != 3 || !strings.Contains(all[0], "ended its goroutine") || !strings.Contains(all[2], "gap handler") {
		t.Errorf("panics %q", all)
	}
	d.Close()
	d.Wait()
}

func TestADeliveryNeverBlocksItsPusher(t *testing.T) {
	d, _, _ := startDelivery(t, 1, semantic.DeliveryHooks{})
	pushed := make(chan struct{})
	go func() {
		defer close(pushed)
		for range 10_000 {
			d.Push(message("m"))
			d.PushGap(time.Millisecond)
		}
	}()
	select {
	case <-pushed:
	case <-time.After(20 * time.Second):
		t.Fatal("a stuck handler blocks Push")
	}
}

func TestEveryEncodingErrorOfAPayloadNamesIt(t *testing.T) {
	for payload, want := range map[any]string{make(chan int): "chan int", func() int { return 0 }(): ""} {
		b, err := semantic.EncodePayload("broadcast.publish", "c", payload, 100)
		if want == "" && (err != nil || string(b) != "0") {
			t.Errorf("%v: %s, %v", payload, b, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%T: %v", payload, err)
		}
	}
}
