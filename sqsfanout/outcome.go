package sqsfanout

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"github.com/wrkbelt/coord/semantic"
)

// Codes of [semantic.FanoutFailure] where the queue gave none.
const (
	CodeInvalid     = "INVALID"     // refused before any I/O
	CodeUnavailable = "UNAVAILABLE" // the queue could not be reached; not queued
	CodeUnknown     = "UNKNOWN"     // the answer was lost; it may be queued
	CodeCancelled   = "CANCELLED"   // the context ended before it was sent
)

// verdict is what a failed request, or a failed entry of one, means for its records.
type verdict struct {
	code    string
	outcome semantic.Outcome
	again   bool // worth another try with the same ids
}

// judge classifies the error of a whole request.
func judge(err error) verdict {
	var api smithy.APIError
	if errors.As(err, &api) {
		code := bareCode(api.ErrorCode())
		var status interface{ HTTPStatusCode() int }
		server := api.ErrorFault() == smithy.FaultServer || (errors.As(err, &status) && status.HTTPStatusCode() >= 500)
		switch _, throttled := retry.DefaultThrottleErrorCodes[code]; {
		case throttled || code == "KmsThrottled" || code == "OverLimit":
			return verdict{code, semantic.OutcomeUnavailable, true}
		case server || code == "InternalError" || code == "InternalFailure" || code == "ServiceUnavailable":
			// The server failed at an unknown point.
			return verdict{CodeUnknown, semantic.OutcomeUnknown, true}
		}
		return verdict{code, semantic.OutcomeUnavailable, false}
	}
	var invalid smithy.InvalidParamsError
	if errors.As(err, &invalid) {
		return verdict{CodeInvalid, semantic.OutcomeUnavailable, false}
	}
	var dns *net.DNSError
	var op *net.OpError
	if errors.As(err, &dns) || (errors.As(err, &op) && op.Op == "dial") {
		return verdict{CodeUnavailable, semantic.OutcomeUnavailable, true}
	}
	return verdict{CodeUnknown, semantic.OutcomeUnknown, true}
}

// bareCode takes the prefix off codes of the service's older protocol.
func bareCode(code string) string {
	if i := strings.LastIndexByte(code, '.'); i >= 0 {
		code = code[i+1:]
	}
	if code == "NonExistentQueue" {
		return "QueueDoesNotExist"
	}
	return code
}

// outcomeError wraps the cause of a failed request once.
func outcomeError(operation, key string, cause error) error {
	return &semantic.OutcomeError{Operation: operation, Key: key, Outcome: judge(cause).outcome, Cause: cause}
}

// ended is the error of a context that has ended.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return errors.Join(ctx.Err(), cause)
	}
	return ctx.Err()
}
