package testkit

import (
	"context"
	"errors"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// withLockCases are those of WithLock.
func withLockCases() []Case[semantic.DistributedLock] {
	type backend = Backend[semantic.DistributedLock]
	return []Case[semantic.DistributedLock]{
		{Name: "WithLock runs fn holding the key, with its fence, and releases", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			failure := errors.New("work failed")
			ran, err := ls[0].WithLock(t.Context(), "k", longTTL, func(ctx context.Context) error {
				if f, ok := semantic.FenceFromContext(ctx); !ok || f <= 0 {
					t.Errorf("fence of the work's context: %d, %v", f, ok)
				}
				mustContend(t, ls[1], "k", longTTL)
				return failure
			})
			if !ran || !errors.Is(err, failure) || errors.Is(err, semantic.ErrLockLost) {
				t.Errorf("WithLock returned %v, %v, want true and the work's error", ran, err)
			}
			mustAcquire(t, ls[1], "k", longTTL)
		}},
		{Name: "WithLock collapses contention to ran == false without an error", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			mustAcquire(t, ls[0], "k", longTTL)
			ran, err := ls[1].WithLock(t.Context(), "k", longTTL, func(context.Context) error {
				t.Errorf("the work ran without the lock")
				return nil
			})
			if ran || err != nil {
				t.Errorf("WithLock returned %v, %v, want false, nil", ran, err)
			}
		}},
		{Name: "WithLock releases when fn panics, and lets the panic through", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			func() {
				defer func() {
					if p := recover(); p != "boom" {
						t.Errorf("recovered %v, want the work's panic", p)
					}
				}()
				_, _ = ls[0].WithLock(t.Context(), "k", longTTL, func(context.Context) error { panic("boom") })
			}()
			mustAcquire(t, ls[1], "k", longTTL)
		}},
		{Name: "WithLock releases when its caller's context has ended", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			ctx, cancel := context.WithCancel(t.Context())
			ran, err := ls[0].WithLock(ctx, "k", longTTL, func(work context.Context) error {
				cancel()
				<-work.Done()
				return context.Cause(work)
			})
			if !ran || !errors.Is(err, context.Canceled) || errors.Is(err, semantic.ErrLockLost) {
				t.Errorf("WithLock returned %v, %v, want true and context.Canceled", ran, err)
			}
			mustAcquire(t, ls[1], "k", longTTL)
		}},
		// redsync#153, redisson#4698: the work must learn that its lock has gone.
		{Name: "WithLock ends fn's context with ErrLockLost before the key can expire", Run: func(t T, b backend) {
			ls := b.New(t, 2)
			started, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				ran, err := ls[0].WithLock(t.Context(), "k", span, func(ctx context.Context) error {
					close(started)
					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(20 * time.Second):
						return errors.New("the context never ended")
					}
				})
				if !ran || !errors.Is(err, semantic.ErrLockLost) {
					t.Errorf("WithLock returned %v, %v, want true, ErrLockLost", ran, err)
				}
			}()
			receive(t, started, "the work to start")
			b.Advance(span)
			receive(t, done, "the work to be cancelled")
		}},
		{Name: "WithLock says ErrLockLost although fn ignored it and succeeded", Run: func(t T, b backend) {
			l := b.New(t, 1)[0]
			ran, err := l.WithLock(t.Context(), "k", span, func(ctx context.Context) error {
				b.Advance(span + 10*time.Millisecond)
				<-ctx.Done()
				return nil
			})
			if !ran || !errors.Is(err, semantic.ErrLockLost) {
				t.Errorf("WithLock returned %v, %v, want true, ErrLockLost", ran, err)
			}
		}},
	}
}
