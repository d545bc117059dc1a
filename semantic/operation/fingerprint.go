package operation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Bounds of a fingerprint's parts, in bytes.
const (
	MaxFingerprintDomainBytes = 64
	MaxFingerprintFieldBytes  = 512
	MaxAccountBytes           = 128
)

// Fingerprint is the digest of an operation's canonical business input: domain, which
// names the kind and version of the tuple ("order-v1"), and fields in their fixed
// order. Each field is 1 to 512 bytes of valid UTF-8 without control characters.
// Errors are [*InvalidError].
//
// Put into it what makes two requests the same request, and nothing that changes from
// one try to the next.
func Fingerprint(domain string, fields ...string) (string, error) {
	if err := validateText("fingerprint domain", domain, MaxFingerprintDomainBytes); err != nil {
		return "", err
	}
	for i, f := range fields {
		if err := validateText(fmt.Sprintf("fingerprint field %d", i), f, MaxFingerprintFieldBytes); err != nil {
			return "", err
		}
	}
	return digest(append([]string{domain}, fields...)...), nil
}

// FingerprintNamed is [Fingerprint] of named fields: the tuple is name, value, name,
// value, … in the byte order of the names, so the order in which a request gave them
// does not matter. Names are bounded as values are; an error about a value names its
// field: fingerprint field "seat". Give one domain to one form only.
func FingerprintNamed(domain string, fields map[string]string) (string, error) {
	if err := validateText("fingerprint domain", domain, MaxFingerprintDomainBytes); err != nil {
		return "", err
	}
	tuple := []string{domain}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := validateText(fmt.Sprintf("fingerprint field name %.64q", name), name, MaxFingerprintFieldBytes); err != nil {
			return "", err
		}
		if err := validateText(fmt.Sprintf("fingerprint field %.64q", name), fields[name], MaxFingerprintFieldBytes); err != nil {
			return "", err
		}
		tuple = append(tuple, name, fields[name])
	}
	return digest(tuple...), nil
}

// Payment is the business input of a transfer of money.
type Payment struct {
	Tenant string
	// FromAccount and ToAccount differ; up to 128 of A-Z a-z 0-9 _ : / % . -
	FromAccount string
	ToAccount   string
	// Currency is an active ISO 4217 code that has a minor unit.
	Currency string
	// AmountMinor is the amount in the currency's minor unit, at least 1.
	AmountMinor int64
}

// PaymentFingerprint validates p and returns its fingerprint. Errors are
// [*InvalidError].
func PaymentFingerprint(p Payment) (string, error) {
	if err := validateText("tenant", p.Tenant, MaxTenantBytes); err != nil {
		return "", err
	}
	if err := validateReference("fromAccount", p.FromAccount, MaxAccountBytes); err != nil {
		return "", err
	}
	if err := validateReference("toAccount", p.ToAccount, MaxAccountBytes); err != nil {
		return "", err
	}
	if p.FromAccount == p.ToAccount {
		return "", &InvalidError{Argument: "toAccount", Allowed: "another account than fromAccount"}
	}
	if !isCurrency(p.Currency) {
		return "", &InvalidError{Argument: "currency", Allowed: "an active ISO 4217 code with a minor unit, in capitals"}
	}
	if p.AmountMinor < 1 {
		return "", &InvalidError{Argument: "amountMinor", Allowed: "at least 1 minor unit"}
	}
	return Fingerprint("payment-v1", p.Tenant, p.FromAccount, p.ToAccount, p.Currency, strconv.FormatInt(p.AmountMinor, 10))
}

// ProviderKey is the stable idempotency key to give to a payment provider, 81 ASCII
// characters. It is made of the durable id, never of a lease's token: the token
// changes with every attempt, and the provider must recognise the same operation.
// Both arguments are up to 128 of A-Z a-z 0-9 _ : / % . - Errors are [*InvalidError].
func ProviderKey(durableID, providerAccount string) (string, error) {
	if err := validateReference("durableId", durableID, MaxDurableIDBytes); err != nil {
		return "", err
	}
	if err := validateReference("providerAccount", providerAccount, MaxAccountBytes); err != nil {
		return "", err
	}
	return "lltx-provider-v1-" + digest("provider-v1", providerAccount, durableID), nil
}
