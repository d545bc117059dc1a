package operation

import (
	"context"
	"errors"
	"strings"
	"testing"
)

var fp = strings.Repeat("ab", 32)

func valid() Identity {
	return Identity{Tenant: "acme", Operation: "charge", IdempotencyKey: "k-1", Fingerprint: fp, DurableID: "payment-1"}
}

func TestIdentityIsRefusedOutsideItsBounds(t *testing.T) {
	change := func(f func(*Identity)) Identity { id := valid(); f(&id); return id }
	for _, c := range []struct {
		name     string
		id       Identity
		argument string // "" when it is valid
	}{
		{"as it should be", valid(), ""},
		{"tenant of 128 bytes", change(func(i *Identity) { i.Tenant = strings.Repeat("x", 128) }), ""},
		{"tenant of 129 bytes", change(func(i *Identity) { i.Tenant = strings.Repeat("x", 129) }), "tenant"},
		{"tenant of 65 two-byte characters", change(func(i *Identity) { i.Tenant = strings.Repeat("é", 65) }), "tenant"},
		{"no tenant", change(func(i *Identity) { i.Tenant = "" }), "tenant"},
		{"invalid UTF-8", change(func(i *Identity) { i.Tenant = "a\xffb" }), "tenant"},
		{"an encoded surrogate", change(func(i *Identity) { i.Tenant = "\xed\xa0\x80" }), "tenant"},
		{"C1 control, which the reference allows", change(func(i *Identity) { i.Tenant = "a\u0085b" }), ""},
		{"NUL", change(func(i *Identity) { i.Operation = "a\x00b" }), "operation"},
		{"DEL", change(func(i *Identity) { i.Operation = "a\x7fb" }), "operation"},
		{"newline", change(func(i *Identity) { i.IdempotencyKey = "a\nb" }), "idempotencyKey"},
		{"operation of 96 bytes", change(func(i *Identity) { i.Operation = strings.Repeat("x", 96) }), ""},
		{"operation of 97 bytes", change(func(i *Identity) { i.Operation = strings.Repeat("x", 97) }), "operation"},
		{"key of 256 bytes", change(func(i *Identity) { i.IdempotencyKey = strings.Repeat("x", 256) }), ""},
		{"key of 257 bytes", change(func(i *Identity) { i.IdempotencyKey = strings.Repeat("x", 257) }), "idempotencyKey"},
		{"fingerprint in capitals", change(func(i *Identity) { i.Fingerprint = strings.ToUpper(fp) }), "fingerprint"},
		{"fingerprint of 63", change(func(i *Identity) { i.Fingerprint = fp[1:] }), "fingerprint"},
		{"fingerprint of 65", change(func(i *Identity) { i.Fingerprint = fp + "0" }), "fingerprint"},
		{"fingerprint not hex", change(func(i *Identity) { i.Fingerprint = fp[1:] + "g" }), "fingerprint"},
		{"no durable id", change(func(i *Identity) { i.DurableID = "" }), "durableId"},
		{"durable id of 128", change(func(i *Identity) { i.DurableID = strings.Repeat("x", 128) }), ""},
		{"durable id of 129", change(func(i *Identity) { i.DurableID = strings.Repeat("x", 129) }), "durableId"},
		{"durable id with a space", change(func(i *Identity) { i.DurableID = "a b" }), "durableId"},
		{"durable id with every allowed sign", change(func(i *Identity) { i.DurableID = "aZ0_:/%.-" }), ""},
		{"durable id with a backslash", change(func(i *Identity) { i.DurableID = `a\b` }), "durableId"},
	} {
		t.Run(c.name, func(t *testing.T) { wantInvalid(t, c.id.Validate(), c.argument) })
	}
}

func wantInvalid(t *testing.T, err error, argument string) {
	t.Helper()
	var invalid *InvalidError
	switch {
	case argument == "" && err != nil:
		t.Fatalf("refused: %v", err)
	case argument != "" && (!errors.As(err, &invalid) || !errors.Is(err, ErrInvalid) || invalid.Argument != argument):
		t.Fatalf("got %v, want %s to be refused", err, argument)
	}
}

func TestNamespaceAndReferencesAreRefusedOutsideTheirBounds(t *testing.T) {
	for ns, ok := range map[string]bool{
		"billing-operations": true, "a": true, "9_.:-": true, strings.Repeat("n", 96): true,
		"": false, strings.Repeat("n", 97): false, "-a": false, ".a": false, "a{b": false, "a b": false, "é": false,
	} {
		if err := ValidateNamespace(ns); (err == nil) != ok {
			t.Errorf("namespace %q: %v", ns, err)
		}
	}
	for ref, ok := range map[string]bool{
		"receipt/1": true, strings.Repeat("r", 256): true, strings.Repeat("r", 257): false, "": false, "a b": false, "é": false,
	} {
		if err := ValidateResultRef(ref); (err == nil) != ok {
			t.Errorf("reference %q: %v", ref, err)
		}
	}
}

func TestLeaseNeedsAnIdentityAndAToken(t *testing.T) {
	wantInvalid(t, Lease{Identity: valid(), Token: NewToken()}.Validate(), "")
	wantInvalid(t, Lease{Identity: valid()}.Validate(), "lease token")
	wantInvalid(t, Lease{Token: NewToken()}.Validate(), "tenant")
}

func TestEveryTokenIsFreshAndAnEmptyOneIsRefused(t *testing.T) {
	seen := map[Token]bool{}
	for range 1000 {
		o, err := ResolveBeginOptions()
		if err != nil || seen[o.Token] || !isHex64(string(o.Token)) {
			t.Fatalf("token %q, %v", o.Token, err)
		}
		seen[o.Token] = true
	}
	if o, err := ResolveBeginOptions(func(*BeginOptions) {}); err != nil || !isHex64(string(o.Token)) {
		t.Errorf("an option about something else: token %q, %v", o.Token, err)
	}
	_, err := ResolveBeginOptions(WithToken(""))
	wantInvalid(t, err, "token")
	given := NewToken()
	if o, err := ResolveBeginOptions(WithToken(given)); err != nil || o.Token != given {
		t.Fatalf("token %q, %v", o.Token, err)
	}
}

func TestANilOptionIsRefusedByItsPlace(t *testing.T) {
	_, err := ResolveBeginOptions(nil)
	wantInvalid(t, err, "opts[0]")
	_, err = ResolveBeginOptions(WithToken(NewToken()), nil)
	wantInvalid(t, err, "opts[1]")
}

func TestANilContextIsRefused(t *testing.T) {
	var none context.Context
	wantInvalid(t, ValidateContext(none), "ctx")
	wantInvalid(t, ValidateContext(t.Context()), "")
}

func TestTheZeroValueIsNoOutcome(t *testing.T) {
	for name, ok := range map[string]bool{
		"begin": BeginResult{}.Outcome.Valid(), "renew": RenewResult{}.Outcome.Valid(),
		"complete": CompleteResult{}.Outcome.Valid(), "abandon": AbandonResult{}.Outcome.Valid(),
		"status": Status{}.Outcome.Valid(),
	} {
		if ok {
			t.Errorf("the zero %s result claims to be an outcome", name)
		}
	}
	for _, ok := range []bool{
		BeginAcquired.Valid(), BeginInProgress.Valid(), BeginCompleted.Valid(), BeginConflict.Valid(),
		RenewRenewed.Valid(), RenewLost.Valid(), CompleteCompleted.Valid(), CompleteConflict.Valid(), CompleteLost.Valid(),
		AbandonAbandoned.Valid(), AbandonLost.Valid(), StatusMissing.Valid(), StatusInProgress.Valid(),
		StatusRecoveryRequired.Valid(), StatusCompleted.Valid(), StatusConflict.Valid(),
	} {
		if !ok {
			t.Error("an outcome is not valid")
		}
	}
}

func TestErrorsMatchTheirClassAndTheirCause(t *testing.T) {
	cause := errors.New("cause")
	classes := []error{ErrUnavailable, ErrUnknown, ErrRejected, ErrInvalid}
	for _, c := range []struct {
		err   error
		class error
	}{
		{&UnavailableError{Command: "begin", Cause: cause}, ErrUnavailable},
		{&UnknownError{Command: "begin", Cause: cause}, ErrUnknown},
		{&RejectedError{Command: "begin", Code: "OOM", Cause: cause}, ErrRejected},
		{&InvalidError{Argument: "tenant", Allowed: "some"}, ErrInvalid},
	} {
		for _, class := range classes {
			if got := errors.Is(c.err, class); got != (class == c.class) {
				t.Errorf("%v matches %v: %v", c.err, class, got)
			}
		}
		if c.class != ErrInvalid && !errors.Is(c.err, cause) {
			t.Errorf("%v hides its cause", c.err)
		}
	}
	token := NewToken()
	if text := (&UnknownError{Command: "begin", Token: token, Cause: cause}).Error(); strings.Contains(text, string(token)) {
		t.Errorf("the message shows the token: %s", text)
	}
}
