package operation

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"
)

// Bounds of what is recorded, in bytes.
const (
	MaxNamespaceBytes      = 96
	MaxTenantBytes         = 128
	MaxOperationBytes      = 96
	MaxIdempotencyKeyBytes = 256
	MaxDurableIDBytes      = 128
	MaxResultRefBytes      = 256
)

// Bounds and defaults of a coordinator's time settings.
const (
	DefaultLease     = 30 * time.Second
	MinLease         = time.Millisecond
	MaxLease         = time.Hour
	DefaultRetention = 7 * 24 * time.Hour
	MaxRetention     = 30 * 24 * time.Hour
)

// Identity names one durable operation. Tenant, Operation and IdempotencyKey find its
// record; Fingerprint and DurableID must then be those it was first begun with.
type Identity struct {
	// Tenant, Operation and IdempotencyKey are well-formed UTF-8 without the control
	// characters U+0000 to U+001F and U+007F, of at most 128, 96 and 256 bytes.
	Tenant         string
	Operation      string
	IdempotencyKey string
	// Fingerprint is the digest of the canonical business input, 64 lowercase hex
	// digits: see [Fingerprint] and [PaymentFingerprint].
	Fingerprint string
	// DurableID names the row in the database, up to 128 of A-Z a-z 0-9 _ : / % . -
	DurableID string
}

// Validate returns an [*InvalidError] for the first field that is out of bounds.
func (id Identity) Validate() error {
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"tenant", id.Tenant, MaxTenantBytes},
		{"operation", id.Operation, MaxOperationBytes},
		{"idempotencyKey", id.IdempotencyKey, MaxIdempotencyKeyBytes},
	} {
		if err := validateText(f.name, f.value, f.most); err != nil {
			return err
		}
	}
	if !isHex64(id.Fingerprint) {
		return &InvalidError{Argument: "fingerprint", Allowed: "64 lowercase hex digits"}
	}
	return validateReference("durableId", id.DurableID, MaxDurableIDBytes)
}

// Token is the identity of one attempt, 256 random bits as lowercase hex. It is fresh
// for every Begin and never a provider's idempotency key: see [ProviderKey].
type Token string

// NewToken returns a token that no other attempt has.
func NewToken() Token {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return Token(hex.EncodeToString(b[:]))
}

func (t Token) validate(argument string) error {
	if !isHex64(string(t)) {
		return &InvalidError{Argument: argument, Allowed: "64 lowercase hex digits"}
	}
	return nil
}

// Lease is the right of one attempt to work on an operation for a time.
type Lease struct {
	Identity Identity
	Token    Token
	// Attempt counts the attempts at this operation that the coordinator has seen,
	// from 1. It is a lower bound where the reference implementation takes part:
	// that one keeps no count.
	Attempt int
	// Takeover tells that an earlier attempt neither completed nor abandoned, so its
	// effects may exist.
	Takeover bool
	// Term is the whole length of the lease.
	Term time.Duration
	// ValidUntil is when the holder must stop relying on the lease: the local
	// monotonic instant before the request was sent, plus what the server granted.
	ValidUntil time.Time
}

// Validate returns an [*InvalidError] for the first field that is out of bounds.
func (l Lease) Validate() error {
	if err := l.Identity.Validate(); err != nil {
		return err
	}
	return l.Token.validate("lease token")
}

// ValidateContext refuses a nil context. For implementations of [Coordinator].
func ValidateContext(ctx context.Context) error {
	if ctx == nil {
		return &InvalidError{Argument: "ctx", Allowed: "a context, not nil"}
	}
	return nil
}

// ValidateResultRef checks the reference to a stored result: up to 256 of
// A-Z a-z 0-9 _ : / % . - It returns an [*InvalidError] or nil.
func ValidateResultRef(ref string) error {
	return validateReference("resultRef", ref, MaxResultRefBytes)
}

// ValidateNamespace checks the first part of every record key: up to 96 of
// A-Z a-z 0-9 _ . : - beginning with a letter or digit.
func ValidateNamespace(namespace string) error {
	if namespace == "" || len(namespace) > MaxNamespaceBytes || !isAlphanumeric(namespace[0]) ||
		!every(namespace, func(c byte) bool { return isAlphanumeric(c) || c == '_' || c == '.' || c == ':' || c == '-' }) {
		return &InvalidError{
			Argument: "namespace",
			Allowed:  fmt.Sprintf("1 to %d letters, digits or _ . : - beginning with a letter or digit", MaxNamespaceBytes),
		}
	}
	return nil
}

// RecordKey is the backend's key of id's record under namespace, which carries no
// tenant material in the clear. Its braces are a Cluster hash tag. Both arguments must
// be valid.
func RecordKey(namespace string, id Identity) string {
	var text [160]byte
	b := appendDigest(append(text[:0], "lltx:v1:"...), namespace, id.Tenant)
	b = appendDigest(append(b, ":{"...), namespace, id.Tenant, id.Operation, id.IdempotencyKey)
	return string(append(b, "}:record"...))
}

func validateText(argument, value string, most int) error {
	switch {
	case value == "" || len(value) > most:
	case !utf8.ValidString(value):
	case !every(value, func(c byte) bool { return c >= 0x20 && c != 0x7f }):
	default:
		return nil
	}
	return &InvalidError{Argument: argument, Allowed: fmt.Sprintf("1 to %d bytes of valid UTF-8 without control characters", most)}
}

func validateReference(argument, value string, most int) error {
	if value == "" || len(value) > most || !every(value, isReferenceByte) {
		return &InvalidError{Argument: argument, Allowed: fmt.Sprintf("1 to %d of A-Z a-z 0-9 _ : / %% . -", most)}
	}
	return nil
}

func isReferenceByte(c byte) bool {
	return isAlphanumeric(c) || c == '_' || c == ':' || c == '/' || c == '%' || c == '.' || c == '-'
}

func isAlphanumeric(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}

func isHex64(s string) bool {
	return len(s) == 64 && every(s, func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' })
}

func every(s string, holds func(byte) bool) bool {
	for i := range len(s) {
		if !holds(s[i]) {
			return false
		}
	}
	return true
}
