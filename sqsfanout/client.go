package sqsfanout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/wrkbelt/coord/semantic"
)

// open returns the API to use. It reads environment and files and does no network I/O.
func (c Config) open(ctx context.Context) (API, error) {
	if c.API != nil {
		return c.API, nil
	}
	var options []func(*awsconfig.LoadOptions) error
	if c.Region != "" {
		options = append(options, awsconfig.WithRegion(c.Region))
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("sqs client: %w", err)
	}
	if loaded.Region == "" {
		return nil, errors.New("sqs Region: not set: want the queue's region (AWS_REGION)")
	}
	return sqs.NewFromConfig(loaded, func(o *sqs.Options) {
		if c.EndpointURL != "" {
			o.BaseEndpoint = aws.String(c.EndpointURL)
		}
		o.Retryer = pinnedRetryer()
	}), nil
}

// pinnedRetryer is for the requests that may be repeated blindly: deletes, visibility
// changes, reads. The SDK's defaults differ between its versions, so all is said.
func pinnedRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 3
		o.BaseDelay = 50 * time.Millisecond
		o.MaxBackoff = 2 * time.Second
	})
}

// tryOnce leaves the repetition of a send or receive to this package, which knows the
// identities that make it safe.
func tryOnce(o *sqs.Options) { o.Retryer = aws.NopRetryer{} }

// sleep waits for d by the clock; it returns false if ctx ended first.
func sleep(ctx context.Context, clock semantic.Clock, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	due := make(chan struct{})
	stop := clock.AfterFunc(d, func() { close(due) })
	defer stop()
	select {
	case <-ctx.Done():
		return false
	case <-due:
		return true
	}
}
