package sqsfanout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// QueueError is one attribute of a queue that does not fit. A start fails with all of
// them joined.
type QueueError struct {
	QueueURL  string
	Attribute string // SQS's name of it
	Value     string
	Want      string // what is needed and why
}

// Error names the queue, the attribute, its value and what is needed.
func (e *QueueError) Error() string {
	return fmt.Sprintf("queue %s: %s is %q: want %s", e.QueueURL, e.Attribute, e.Value, e.Want)
}

// queueInfo is what is known of a verified queue.
type queueInfo struct {
	maxBytes    int           // of one message
	retention   time.Duration // how long a message may wait
	maxReceives int           // after how many a message goes to the dead-letter queue; 0: never
}

// verify reads the queue's attributes and checks those that delivery depends on. One
// round trip.
func verify(ctx context.Context, c Config, api API, queueURL string, consuming bool) (queueInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	out, err := api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &queueURL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return queueInfo{}, fmt.Errorf("queue %s cannot be read: %w", queueURL, outcomeError("sqs.verify", queueURL, err))
	}
	a := out.Attributes
	var bad []error
	refuse := func(attribute, want string) {
		bad = append(bad, &QueueError{queueURL, attribute, a[attribute], want})
	}
	if a["FifoQueue"] != "true" {
		refuse("FifoQueue", `"true": only FIFO queues deduplicate and keep order`)
	}
	if scope := a["DeduplicationScope"]; scope != "" && scope != "queue" && scope != "messageGroup" {
		refuse("DeduplicationScope", "queue or messageGroup")
	}
	if a["FifoThroughputLimit"] == "perMessageGroupId" && a["DeduplicationScope"] != "messageGroup" {
		refuse("DeduplicationScope", "messageGroup, because FifoThroughputLimit is perMessageGroupId")
	}
	info := queueInfo{maxBytes: maxBatchBytes, retention: 4 * 24 * time.Hour}
	if n, err := strconv.Atoi(a["MaximumMessageSize"]); err == nil && n > 0 {
		info.maxBytes = min(n, maxBatchBytes)
	}
	if n, err := strconv.Atoi(a["MessageRetentionPeriod"]); err == nil && n > 0 {
		info.retention = time.Duration(n) * time.Second
	}
	if consuming {
		if n, err := strconv.Atoi(a["VisibilityTimeout"]); err == nil && n == 0 {
			refuse("VisibilityTimeout", "at least 1 second, or other readers of the queue receive a message twice at once")
		}
		info.maxReceives = checkRedrive(c, a["RedrivePolicy"], refuse)
	}
	return info, errors.Join(bad...)
}

// minReceives leaves room for a failure and for being received behind a failed message
// of the group, which counts as well.
const minReceives = 3

func checkRedrive(c Config, policy string, refuse func(attribute, want string)) (maxReceives int) {
	var p struct {
		Target string `json:"deadLetterTargetArn"`
		Max    any    `json:"maxReceiveCount"` // a number, or in older policies a string
	}
	if policy == "" {
		if !c.AllowNoRedrive {
			refuse("RedrivePolicy", "a dead-letter queue, or a message that always fails blocks its group until it expires (AllowNoRedrive accepts that)")
		}
		return 0
	}
	err := json.Unmarshal([]byte(policy), &p)
	maxReceives, _ = strconv.Atoi(fmt.Sprint(p.Max))
	if err != nil || p.Target == "" || maxReceives < minReceives {
		refuse("RedrivePolicy", fmt.Sprintf("a deadLetterTargetArn and a maxReceiveCount of at least %d, since a message released behind a failed one of its group was received too", minReceives))
	}
	return maxReceives
}

// checkRetention refuses a log that forgets a record while its message may still wait.
func checkRetention(queueURL string, info queueInfo, consumer string, rememberDays int) error {
	if time.Duration(rememberDays)*24*time.Hour >= info.retention {
		return nil
	}
	return &QueueError{
		queueURL, "MessageRetentionPeriod", strconv.Itoa(int(info.retention / time.Second)),
		fmt.Sprintf("at most consumer %q's RememberDays of %d days, or a late redelivery is handled twice", consumer, rememberDays),
	}
}
