package semantic

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds that every implementation of the contracts enforces before any I/O.
const (
	// MaxKeyBytes is the longest key, holder, domain or channel name.
	MaxKeyBytes = 512
	// MinTTL is the shortest ttl or window: durations travel in whole milliseconds.
	MinTTL = time.Millisecond
	// MaxTTL is the longest ttl or window.
	MaxTTL = 366 * 24 * time.Hour
)

// ValidateName checks a key, holder, domain, channel or other name: 1 to
// [MaxKeyBytes] bytes of valid UTF-8 without control characters. It returns an
// [*ArgumentError] or nil. Implementations of the contracts call it before any I/O.
func ValidateName(operation, argument, value string) error {
	var allowed string
	switch {
	case value == "":
		allowed = "at least one character"
	case len(value) > MaxKeyBytes:
		allowed = fmt.Sprintf("at most %d bytes, got %d", MaxKeyBytes, len(value))
		value = strings.ToValidUTF8(value[:32], "") + "…"
	case !utf8.ValidString(value):
		allowed = "valid UTF-8"
	case strings.ContainsFunc(value, unicode.IsControl):
		allowed = "no control characters"
	default:
		return nil
	}
	return &ArgumentError{Operation: operation, Argument: argument, Value: value, Allowed: allowed}
}

// ValidateDuration checks a ttl or window: [MinTTL] to [MaxTTL]. It returns an
// [*ArgumentError] or nil.
func ValidateDuration(operation, argument string, value time.Duration) error {
	if value >= MinTTL && value <= MaxTTL {
		return nil
	}
	return &ArgumentError{
		Operation: operation, Argument: argument, Value: value,
		Allowed: fmt.Sprintf("%v to %v", MinTTL, MaxTTL),
	}
}

// Milliseconds converts a validated duration to the whole milliseconds that go to
// the server, rounded up, so that nothing is ever held shorter than asked.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// applyOptions applies opts to o, and refuses a nil one by its place.
func applyOptions[O any, F ~func(*O)](operation string, o *O, opts []F) error {
	for i, opt := range opts {
		if opt == nil {
			return &ArgumentError{Operation: operation, Argument: fmt.Sprintf("opts[%d]", i), Value: "nil", Allowed: "an option"}
		}
		opt(o)
	}
	return nil
}
