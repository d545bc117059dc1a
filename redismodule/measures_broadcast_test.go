package redismodule

import (
	"context"
	"testing"
	"time"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

func TestWhatABroadcastMeasures(t *testing.T) {
	// heard subscribes, and returns a channel that has what the handler was called with.
	heard := func(t *testing.T, s *Services, handle func(), opts ...semantic.SubscribeOption) chan struct{} {
		t.Helper()
		calls := make(chan struct{}, 16)
		_, err := s.Broadcast.Subscribe(t.Context(), measuredKey, func(context.Context, semantic.Message) {
			defer func() { calls <- struct{}{} }()
			handle()
		}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return calls
	}
	// closed waits until the worker has counted what the handler was called with last.
	closed := func(t *testing.T, s *Services) {
		t.Helper()
		if err := s.Broadcast.close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runMeasured(t, []measuredCase{
		{
			name: "a message is published and delivered",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				calls := heard(t, s, func() {})
				_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				<-calls
				closed(t, s)
			},
			metrics: append(bothOf("broadcast", "subscribe subscribed", "publish published"), "broadcast.messages delivered 1"),
			spans:   []string{"coord.broadcast subscribe: subscribed Unset", "coord.broadcast publish: published Unset"},
		},
		{
			name: "a handler that panics, a message that is none",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				calls := heard(t, s, func() { panic("no") })
				_, err := s.core.command.Do(t.Context(), conn.Op{Name: "test"}, "PUBLISH", s.Broadcast.key(measuredKey), "no envelope")
				if err != nil {
					t.Fatal(err)
				}
				_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				<-calls
				pause(t.Context(), 50*time.Millisecond) // the other one was published before
				closed(t, s)
			},
			metrics: append(bothOf("broadcast", "subscribe subscribed", "publish published"), "broadcast.messages panicked 1", "broadcast.messages bad 1"),
			spans:   []string{"coord.broadcast subscribe: subscribed Unset", "coord.broadcast publish: published Unset"},
		},
		{
			name: "a queue that overflows",
			do: func(t *testing.T, s *Services, _ *faultNet) {
				started, busy := make(chan struct{}, 16), make(chan struct{})
				gap := make(chan semantic.Gap, 1)
				handle := func() {
					started <- struct{}{}
					<-busy
				}
				heard(t, s, handle, semantic.WithQueue(1), semantic.WithGapHandler(func(_ context.Context, g semantic.Gap) { gap <- g }))
				// The first is being handled, the second waits, two find no room.
				_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				<-started
				for range 3 {
					_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				}
				pause(t.Context(), 100*time.Millisecond) // they arrive
				close(busy)
				<-gap
				closed(t, s)
			},
			metrics: []string{
				"broadcast.calls subscribe subscribed 1", "broadcast.duration subscribe subscribed 1",
				"broadcast.calls publish published 4", "broadcast.duration publish published 4",
				"broadcast.messages delivered 2", "broadcast.messages overflow 2", "broadcast.gaps overflow 1",
			},
			spans: []string{
				"coord.broadcast subscribe: subscribed Unset", "coord.broadcast publish: published Unset", "coord.broadcast publish: published Unset",
				"coord.broadcast publish: published Unset", "coord.broadcast publish: published Unset",
			},
		},
		{
			name: "redis is down",
			do: func(t *testing.T, s *Services, network *faultNet) {
				defer network.inject(testkit.FaultDown)()
				_ = s.Broadcast.Publish(t.Context(), measuredKey, 1)
				_, _ = s.Broadcast.Subscribe(t.Context(), measuredKey, func(context.Context, semantic.Message) {})
			},
			metrics: bothOf("broadcast", "publish unavailable", "subscribe unavailable"),
			spans:   []string{"coord.broadcast publish: unavailable Error", "coord.broadcast subscribe: unavailable Error"},
		},
	})
}
