package recipes

import (
	"errors"

	"github.com/wrkbelt/coord/semantic"
)

// Advice says what a caller may do about an error of any call.
func Advice(err error) string {
	switch {
	case err == nil:
		return "known: go on"
	case errors.Is(err, semantic.ErrInvalidArgument):
		return "nothing was sent: fix the caller"
	case errors.Is(err, semantic.ErrUnknown):
		return "it may have been applied: repeat it only where the contract says so"
	case errors.Is(err, semantic.ErrUnavailable):
		return "nothing was applied: repeating it is safe"
	default:
		return "closed, corrupt, wrong type, or the caller's own error"
	}
}
