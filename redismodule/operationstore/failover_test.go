package operationstore

import (
	"errors"
	"testing"

	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// TestAServerThatBecameAReplicaAnswersNothing: what a former primary remembers may be
// out of date, so that every command is refused there, also those that only read.
func TestAServerThatBecameAReplicaAnswersNothing(t *testing.T) {
	server := testkit.StartRedis(t)
	o, err := Open(Config{Redis: redismodule.Config{URL: server.URL()}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close(t.Context()) }()
	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	identity := func(key string) operation.Identity {
		return operation.Identity{
			Tenant: "acme", Operation: "charge", IdempotencyKey: key,
			Fingerprint: "9816f5cc0f53f6644b4870b643bba0319f980aa1c3dbf509f85c2e4b0bfc8fa9", DurableID: "payment-" + key,
		}
	}
	begin := func(key string) operation.Lease {
		got, err := o.Begin(t.Context(), identity(key))
		if err != nil || got.Outcome != operation.BeginAcquired {
			t.Fatalf("begin: %+v, %v", got, err)
		}
		return got.Lease
	}
	live, done := begin("live"), begin("done")
	if _, err := o.Complete(t.Context(), done, "ref"); err != nil {
		t.Fatal(err)
	}
	other := live
	other.Token = done.Token
	server.Must("REPLICAOF", "127.0.0.1", "1")
	for name, call := range map[string]func() error{
		"begin of a new one":         func() error { _, err := o.Begin(t.Context(), identity("new")); return err },
		"begin of a live one":        func() error { _, err := o.Begin(t.Context(), identity("live")); return err },
		"begin of a completed one":   func() error { _, err := o.Begin(t.Context(), identity("done")); return err },
		"status of a live one":       func() error { _, err := o.ReadStatus(t.Context(), identity("live")); return err },
		"status of a completed one":  func() error { _, err := o.ReadStatus(t.Context(), identity("done")); return err },
		"status of none":             func() error { _, err := o.ReadStatus(t.Context(), identity("none")); return err },
		"renew":                      func() error { _, err := o.Renew(t.Context(), live); return err },
		"renew by another":           func() error { _, err := o.Renew(t.Context(), other); return err },
		"complete again":             func() error { _, err := o.Complete(t.Context(), done, "ref"); return err },
		"complete with another ref":  func() error { _, err := o.Complete(t.Context(), done, "other"); return err },
		"abandon of a completed one": func() error { _, err := o.Abandon(t.Context(), done); return err },
	} {
		var rejected *operation.RejectedError
		if err := call(); !errors.As(err, &rejected) || rejected.Code != "READONLY" {
			t.Errorf("%s on a replica: %v, want rejected with READONLY", name, err)
		}
	}
}
