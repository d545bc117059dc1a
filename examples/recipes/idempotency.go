package recipes

import (
	"context"
	"net/http"

	"github.com/wrkbelt/coord/semantic"
)

// Webhook books each event of a payment provider once, however often it is sent.
func Webhook(log semantic.IdempotencyLog, organization, eventID string, book func(ctx context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := semantic.RunOnce(r.Context(), log, semantic.IdempotencyRequest{
			OrganizationID: organization, Domain: "payment-webhook", Key: eventID, TTLDays: 30, RetryFailed: true,
		}, func(ctx context.Context, _ semantic.IdempotencyRecord) (map[string]string, error) {
			return nil, book(ctx)
		})
		switch {
		case err != nil: // book failed, or the log could not say: the provider sends it again
			w.WriteHeader(http.StatusServiceUnavailable)
		case result.Acquired, result.Record.Status == semantic.StatusCompleted:
			w.WriteHeader(http.StatusOK)
		default: // PENDING: another request is booking it now, or died in it
			w.WriteHeader(http.StatusConflict)
		}
	}
}
