package sqsfanout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
)

// checkQueues asks for an attribute of each queue, which shows that it is there and that
// the credentials are good. One request for each, at once.
func checkQueues(ctx context.Context, apis map[string]API) health.Result {
	var mu sync.Mutex
	var failures []error
	var all sync.WaitGroup
	for url, api := range apis {
		all.Go(func() {
			_, err := api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
				QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
			}, tryOnce)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, fmt.Errorf("queue %s: %w", queueName(url), outcomeError("sqs.health", queueName(url), err)))
			}
		})
	}
	all.Wait()
	err := errors.Join(failures...)
	return health.Result{Err: err, Cause: semantic.FailureName(err)}
}

func (p *Producer) check(ctx context.Context) health.Result {
	p.mu.Lock()
	apis := map[string]API{}
	for url, queue := range p.queues {
		apis[url] = queue.api
	}
	p.mu.Unlock()
	return checkQueues(ctx, apis)
}

func (h *Host) check(ctx context.Context) health.Result {
	h.mu.Lock()
	r := h.run
	h.mu.Unlock()
	if r == nil {
		return health.Result{Err: semantic.ErrClosed, Cause: "closed"}
	}
	return checkQueues(ctx, r.apis)
}
