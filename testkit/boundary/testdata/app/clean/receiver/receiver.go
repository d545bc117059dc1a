// Package receiver takes types that hide a client inside the service: where that client
// comes in is reported, and not everywhere its holder goes.
package receiver

import "example.com/app/shared"

// Count uses a holder.
func Count(h *shared.Hidden) int { return h.Len() }
