package testkit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/wrkbelt/coord/semantic"
)

// SQS is an in-process SQS that holds FIFO queues, behind the SDK client's own method
// signatures. It has what a fan-out depends on and what emulators get wrong: the five
// minute deduplication window that outlives deletion, in the scope of the queue or of
// the group; groups that are blocked while one of their messages is in flight;
// visibility by an injected clock, with the 12 h cap; receipts that go stale; redrive;
// replay by ReceiveRequestAttemptId; per-entry results of batches; every size and
// charset limit. Errors have the service's codes.
//
// What is promised only approximately by the service is exact here: a receive takes
// as many messages of the longest waiting group as it may, then goes on to the next.
// Standard queues, delays, encryption and access policies are left out.
//
// Safe for concurrent use. It starts no goroutine of its own; a long poll waits in the
// caller's.
type SQS struct {
	clock semantic.Clock

	mu          sync.Mutex
	queues      map[string]*sqsQueue // by URL
	calls       map[string]int
	cancelHides bool

	faultMu sync.Mutex // not held together with mu
	fault   func(SQSCall) SQSFault
}

// NewSQS returns an SQS without queues whose time is clock's; nil is the system clock.
func NewSQS(clock semantic.Clock) *SQS {
	if clock == nil {
		clock = semantic.SystemClock{}
	}
	return &SQS{clock: clock, queues: map[string]*sqsQueue{}, calls: map[string]int{}}
}

// SQSAdmin is what [CreateFIFO] needs: the SDK client and [SQS] have it.
type SQSAdmin interface {
	CreateQueue(ctx context.Context, in *sqs.CreateQueueInput, _ ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error)
	GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
}

// CreateFIFO makes the queue name.fifo and its dead-letter queue name-dead.fifo, which
// takes a message that was received maxReceives times in vain. attributes are added to
// those of the queue, or replace them.
func CreateFIFO(t T, admin SQSAdmin, name string, maxReceives int, attributes map[string]string) (queueURL, deadLetterURL string) {
	t.Helper()
	create := func(name string, attributes map[string]string) string {
		out, err := admin.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		if err != nil {
			t.Fatalf("queue %s cannot be created: %v", name, err)
		}
		return *out.QueueUrl
	}
	dead := create(name+"-dead.fifo", map[string]string{"FifoQueue": "true"})
	got, err := admin.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &dead, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		t.Fatalf("dead-letter queue has no ARN: %v", err)
	}
	all := map[string]string{
		"FifoQueue":     "true",
		"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, got.Attributes["QueueArn"], maxReceives),
	}
	maps.Copy(all, attributes)
	return create(name+".fifo", all), dead
}

// CreateQueue creates a FIFO queue; the same name with the same attributes again is
// the same queue. It refuses standard queues, which SQS does not have here.
func (s *SQS) CreateQueue(ctx context.Context, in *sqs.CreateQueueInput, _ ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error) {
	return sqsCall(ctx, s, "CreateQueue", "", nil, in, func(SQSFault) (*sqs.CreateQueueOutput, error) {
		name := aws.ToString(in.QueueName)
		if !strings.HasSuffix(name, ".fifo") || len(name) > 80 || in.Attributes["FifoQueue"] != "true" {
			return nil, invalidParameter("QueueName", name, "only FIFO queues: a name of at most 80 characters that ends in .fifo, and FifoQueue true")
		}
		attributes := map[string]string{
			"VisibilityTimeout": "30", "DelaySeconds": "0", "MaximumMessageSize": strconv.Itoa(sqsMaxBytes),
			"MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0",
			"ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue",
		}
		maps.Copy(attributes, in.Attributes)
		if attributes["FifoThroughputLimit"] == "perMessageGroupId" && attributes["DeduplicationScope"] != "messageGroup" {
			return nil, &types.InvalidAttributeValue{Message: aws.String("FifoThroughputLimit perMessageGroupId needs DeduplicationScope messageGroup")}
		}
		for _, limit := range []struct {
			name        string
			least, most int
		}{
			{"VisibilityTimeout", 0, sqsMaxVisibility}, {"DelaySeconds", 0, 900}, {"MaximumMessageSize", 1024, sqsMaxBytes},
			{"MessageRetentionPeriod", 60, 1209600}, {"ReceiveMessageWaitTimeSeconds", 0, 20},
		} {
			if n, err := strconv.Atoi(attributes[limit.name]); err != nil || n < limit.least || n > limit.most {
				return nil, &types.InvalidAttributeValue{Message: aws.String("Invalid value for the parameter " + limit.name + ".")}
			}
		}
		url := "https://sqs.fake.invalid/000000000000/" + name
		if q, ok := s.queues[url]; ok {
			if !maps.Equal(q.attributes, attributes) {
				return nil, &types.QueueNameExists{Message: aws.String("A queue already exists with the same name and a different value for an attribute")}
			}
			return &sqs.CreateQueueOutput{QueueUrl: &url}, nil
		}
		s.queues[url] = newSQSQueue(url, "arn:aws:sqs:us-east-1:000000000000:"+name, attributes)
		return &sqs.CreateQueueOutput{QueueUrl: &url}, nil
	})
}

// GetQueueUrl finds a queue by its name.
func (s *SQS) GetQueueUrl(ctx context.Context, in *sqs.GetQueueUrlInput, _ ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	return sqsCall(ctx, s, "GetQueueUrl", "", nil, in, func(SQSFault) (*sqs.GetQueueUrlOutput, error) {
		url := "https://sqs.fake.invalid/000000000000/" + aws.ToString(in.QueueName)
		if _, ok := s.queues[url]; !ok {
			return nil, &types.QueueDoesNotExist{Message: aws.String("The specified queue does not exist.")}
		}
		return &sqs.GetQueueUrlOutput{QueueUrl: &url}, nil
	})
}

// GetQueueAttributes returns the named attributes, or all of them for All.
func (s *SQS) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return sqsCall(ctx, s, "GetQueueAttributes", aws.ToString(in.QueueUrl), nil, in, func(SQSFault) (*sqs.GetQueueAttributesOutput, error) {
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		visible, inFlight := q.depth(s.clock.Now())
		all := maps.Clone(q.attributes)
		all["QueueArn"] = q.arn
		all["ApproximateNumberOfMessages"] = strconv.Itoa(visible)
		all["ApproximateNumberOfMessagesNotVisible"] = strconv.Itoa(inFlight)
		all["ApproximateNumberOfMessagesDelayed"] = "0"
		out := map[string]string{}
		for _, name := range in.AttributeNames {
			if name == types.QueueAttributeNameAll {
				return &sqs.GetQueueAttributesOutput{Attributes: all}, nil
			}
			if value, ok := all[string(name)]; ok {
				out[string(name)] = value
			}
		}
		return &sqs.GetQueueAttributesOutput{Attributes: out}, nil
	})
}

// PurgeQueue removes every message, in flight or not. What was deduplicated stays so.
func (s *SQS) PurgeQueue(ctx context.Context, in *sqs.PurgeQueueInput, _ ...func(*sqs.Options)) (*sqs.PurgeQueueOutput, error) {
	return sqsCall(ctx, s, "PurgeQueue", aws.ToString(in.QueueUrl), nil, in, func(SQSFault) (*sqs.PurgeQueueOutput, error) {
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		q.purge()
		return &sqs.PurgeQueueOutput{}, nil
	})
}

// Depth returns how many messages of the queue can be received and how many are in
// flight, that is hidden from receivers by their visibility timeout. Messages that
// wait behind one of their group in flight count as visible, as the service has it.
func (s *SQS) Depth(queueURL string) (visible, inFlight int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(&queueURL)
	if err != nil {
		return 0, 0
	}
	return q.depth(s.clock.Now())
}

// queue finds a queue; the mutex is held.
func (s *SQS) queue(url *string) (*sqsQueue, error) {
	if q, ok := s.queues[aws.ToString(url)]; ok {
		return q, nil
	}
	return nil, &types.QueueDoesNotExist{Message: aws.String("The specified queue does not exist.")}
}

// redrive returns the dead-letter queue of q and how many receives come before it.
func (s *SQS) redrive(q *sqsQueue) (dead *sqsQueue, maxReceives int) {
	var policy struct {
		Target string      `json:"deadLetterTargetArn"`
		Max    json.Number `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(q.attributes["RedrivePolicy"]), &policy) != nil {
		return nil, 0
	}
	n, err := policy.Max.Int64()
	if err != nil || n < 1 {
		return nil, 0
	}
	for _, other := range s.queues {
		if other.arn == policy.Target {
			return other, int(n)
		}
	}
	return nil, 0
}

func invalidParameter(name string, value any, reason string) error {
	return &smithy.GenericAPIError{
		Code: "InvalidParameterValue", Fault: smithy.FaultClient,
		Message: fmt.Sprintf("Value %v for parameter %s is invalid. Reason: %s.", value, name, reason),
	}
}

func missingParameter(name string) error {
	return &smithy.GenericAPIError{
		Code: "MissingParameter", Fault: smithy.FaultClient,
		Message: "The request must contain the parameter " + name + ".",
	}
}

// Limits of the service.
const (
	sqsMaxBytes      = 1 << 20
	sqsMaxBatch      = 10
	sqsMaxVisibility = 12 * 60 * 60
	sqsMaxInFlight   = 120_000
	sqsDedupWindow   = 5 * time.Minute
)
