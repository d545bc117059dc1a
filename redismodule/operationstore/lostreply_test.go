package operationstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// Wherever the connection is cut, the caller has its lease within two calls and never
// waits its own lease out, as it does with the reference (30 s).
func TestACutConnectionNeverStrandsTheCaller(t *testing.T) {
	server := testkit.StartRedis(t)
	for name, cut := range map[string]func(p *testkit.Proxy) *testkit.Trap{
		"before the request": func(p *testkit.Proxy) *testkit.Trap { return p.DropNextRequest(nil) },
		"after the request":  func(p *testkit.Proxy) *testkit.Trap { return p.DropNextReply(nil) },
		"amid the reply":     func(p *testkit.Proxy) *testkit.Trap { return p.HalveNextReply(nil) },
		"twice before":       func(p *testkit.Proxy) *testkit.Trap { p.DropNextRequest(nil); return p.DropNextRequest(nil) },
		"twice after":        func(p *testkit.Proxy) *testkit.Trap { p.DropNextReply(nil); return p.DropNextReply(nil) },
		"silently": func(p *testkit.Proxy) *testkit.Trap {
			return p.MuteNextReply(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := testkit.StartProxy(t, server.Addr())
			o := open(t, proxy.Addr(), func(c *Config) { c.CommandDeadline = 500 * time.Millisecond })
			begin(t, o, identity("warm-"+name), operation.BeginAcquired)
			id := identity(name)
			cut(proxy)
			r, err := o.Begin(t.Context(), id)
			if err != nil {
				var unknown *operation.UnknownError
				if !errors.As(err, &unknown) {
					t.Fatalf("begin: %v", err)
				}
				r = begin(t, o, id, operation.BeginAcquired, operation.WithToken(unknown.Token))
			}
			if r.Outcome != operation.BeginAcquired || r.Lease.Attempt != 1 || r.Lease.Takeover {
				t.Fatalf("begin: %+v; the caller met its own first try", r)
			}
			complete(t, o, r.Lease, "ref", operation.CompleteCompleted)
		})
	}
}

// A request that is held up on its way arrives when its caller has long abandoned: it
// must not take the operation for nobody.
func TestARequestThatArrivesLateTakesNothing(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	late := open(t, proxy.Addr(), func(c *Config) { c.CommandDeadline = 300 * time.Millisecond })
	direct := open(t, server.Addr())
	begin(t, late, identity("warm"), operation.BeginAcquired)
	id := identity("late")

	held := proxy.HoldNextRequest(nil)
	_, err := late.Begin(t.Context(), id)
	var unknown *operation.UnknownError
	if !errors.As(err, &unknown) {
		t.Fatalf("begin: %v", err)
	}
	r := begin(t, direct, id, operation.BeginAcquired, operation.WithToken(unknown.Token))
	if a, err := direct.Abandon(t.Context(), r.Lease); err != nil || a.Outcome != operation.AbandonAbandoned {
		t.Fatalf("abandon: %+v, %v", a, err)
	}
	key := operation.RecordKey("coord", id)
	before := server.Must("GET", key)
	held.Disarm()
	// The late request has been answered when one behind it on the same server has.
	deadline := time.Now().Add(10 * time.Second)
	for late.Stats().Active > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if after := server.Must("GET", key); after != before {
		t.Fatalf("the late request changed %v to %v", before, after)
	}
	if l := begin(t, direct, id, operation.BeginAcquired).Lease; l.Attempt != 2 || l.Takeover {
		t.Fatalf("the next attempt is told as %+v", l)
	}
}

// A caller that cancels has its answer at once, whatever the server does.
func TestCancellingReturnsPromptlyAndSaysWhatIsKnown(t *testing.T) {
	server := testkit.StartRedis(t)
	proxy := testkit.StartProxy(t, server.Addr())
	signals, logs := watched()
	o := openWith(t, signals, proxy.Addr())
	l := begin(t, o, identity("cancel"), operation.BeginAcquired).Lease
	for name, call := range map[string]func(ctx context.Context) error{
		"unknown":     func(ctx context.Context) error { _, err := o.Complete(ctx, l, "ref"); return err },
		"unavailable": func(ctx context.Context) error { _, err := o.ReadStatus(ctx, l.Identity); return err },
	} {
		held := proxy.HoldNextReply(nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-held.Hit()
			cancel()
		}()
		start := time.Now()
		err := call(ctx)
		if took := time.Since(start); class(err) != name || !errors.Is(err, context.Canceled) || took > 1500*time.Millisecond {
			t.Errorf("%v after %v, want %s", err, took, name)
		}
		held.Disarm()
		cancel()
	}
	if n := emitted(logs, "redis.operation.unavailable"); n != 0 {
		t.Errorf("the caller's own cancel of a read was emitted %d times", n)
	}
	if n := emitted(logs, "redis.operation.unknown"); n != 1 {
		t.Errorf("an unknown outcome was emitted %d times, want once", n)
	}
}
