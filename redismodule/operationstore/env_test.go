package operationstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/redismodule/internal/conn"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a coordinator on addr that ends with the test. It is not started.
func open(t testkit.T, addr string, changes ...func(*Config)) *Opened {
	t.Helper()
	return openWith(t, nil, addr, changes...)
}

func openWith(t testkit.T, signals *observability.Signals, addr string, changes ...func(*Config)) *Opened {
	t.Helper()
	c := Config{Redis: redismodule.Config{Addresses: []string{addr}}}
	for _, change := range changes {
		change(&c)
	}
	o, err := Open(c, signals)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = o.Close(ctx)
	})
	return o
}

func lease(d time.Duration) func(*Config)     { return func(c *Config) { c.Lease = d } }
func retention(d time.Duration) func(*Config) { return func(c *Config) { c.Retention = d } }

// watched returns signals and what they have emitted.
func watched() (*observability.Signals, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return observability.New(zap.New(testkit.RecordSignals(core))), logs
}

func emitted(logs *observer.ObservedLogs, key observability.Key) int {
	return logs.FilterField(zap.String("event", string(key))).Len()
}

func identity(key string) operation.Identity {
	return operation.Identity{
		Tenant: "acme", Operation: "charge", IdempotencyKey: key,
		Fingerprint: strings.Repeat("0123456789abcdef", 4), DurableID: "payment:1/a%2F_b.c-d",
	}
}

func begin(t *testing.T, c operation.Coordinator, id operation.Identity, want operation.BeginOutcome, opts ...operation.BeginOption) operation.BeginResult {
	t.Helper()
	r, err := c.Begin(t.Context(), id, opts...)
	if err != nil || r.Outcome != want {
		t.Fatalf("begin %s: %q, %v; want %s", id.IdempotencyKey, r.Outcome, err, want)
	}
	return r
}

func status(t *testing.T, c operation.Coordinator, id operation.Identity, want operation.StatusOutcome) operation.Status {
	t.Helper()
	s, err := c.ReadStatus(t.Context(), id)
	if err != nil || s.Outcome != want {
		t.Fatalf("status of %s: %q, %v; want %s", id.IdempotencyKey, s.Outcome, err, want)
	}
	return s
}

func complete(t *testing.T, c operation.Coordinator, l operation.Lease, ref string, want operation.CompleteOutcome) {
	t.Helper()
	r, err := c.Complete(t.Context(), l, ref)
	if err != nil || r.Outcome != want {
		t.Fatalf("complete %s: %q, %v; want %s", l.Identity.IdempotencyKey, r.Outcome, err, want)
	}
}

// class names what an error says of its command.
func class(err error) string {
	for name, sentinel := range map[string]error{
		"unavailable": operation.ErrUnavailable, "unknown": operation.ErrUnknown,
		"rejected": operation.ErrRejected, "invalid": operation.ErrInvalid,
	} {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	if err == nil {
		return "known"
	}
	return "unclassified"
}

// stepped makes o's script read a clock that is off by the seconds in the server's key
// clock-step. It is the same script but for that line.
func stepped(t *testing.T, o *Opened) {
	t.Helper()
	const line = "local time = call('TIME')\n"
	if strings.Count(operationLua, line) != 1 {
		t.Fatal("the script reads the time in another way")
	}
	o.transport.script = conn.NewScript("operation-stepped", strings.Replace(operationLua, line,
		line+"time[1] = time[1] + (call('GET', 'clock-step') or 0)\n", 1))
}

// everyCommand calls each method once for l's operation and gives its error.
func everyCommand(t *testing.T, c operation.Coordinator, l operation.Lease) map[string]error {
	t.Helper()
	errs := map[string]error{}
	_, errs["renew"] = c.Renew(t.Context(), l)
	_, errs["complete"] = c.Complete(t.Context(), l, "ref")
	_, errs["abandon"] = c.Abandon(t.Context(), l)
	_, errs["readStatus"] = c.ReadStatus(t.Context(), l.Identity)
	_, errs["begin"] = c.Begin(t.Context(), l.Identity)
	return errs
}

func asRejected(err error, target **operation.RejectedError) bool { return errors.As(err, target) }
