package semantic

import (
	"context"
	"errors"
)

// FailureName is the one word by which metrics and traces call a failed call, "" for
// nil:
//
//	invalid      refused before any I/O, for an argument or a size
//	closed       the service was closed
//	cancelled    its caller gave up; what is known of the effect is in the error
//	unavailable  provably nothing was applied
//	unknown      it may have been applied
//	corrupt      what is stored, or the reply, cannot be decoded
//	failed       anything else, such as the error of the caller's own function
func FailureName(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrInvalidArgument), errors.Is(err, ErrTooLarge):
		return "invalid"
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, ErrUnknown):
		return "unknown"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case errors.Is(err, ErrCorrupt):
		return "corrupt"
	}
	return "failed"
}
