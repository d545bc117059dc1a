package sqsfanout_test

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// A scan's records are queued, and handled once each by whichever replica is free.
func Example() {
	ctx := context.Background()
	queue := testkit.NewSQS(nil)
	created, _ := queue.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: aws.String("work.fifo"), Attributes: map[string]string{"FifoQueue": "true"},
	})
	config := sqsfanout.Config{QueueURL: *created.QueueUrl, API: queue, AllowNoRedrive: true, PollWait: time.Second}

	handled := make(chan string)
	host, err := sqsfanout.NewHost(config, []sqsfanout.Consumer{{
		Domain: "media",
		Handle: func(ctx context.Context, r semantic.FanoutRecord) error {
			handled <- r.OrganizationID + "/" + r.RecordID + ": " + string(r.Body)
			return nil
		},
	}}, testkit.NewIdempotencyLogBackend(nil).Client(), nil)
	if err != nil {
		panic(err)
	}
	if err := host.Start(ctx); err != nil {
		panic(err)
	}
	defer host.Stop(ctx)

	producer, err := sqsfanout.NewProducer(config, nil)
	if err != nil {
		panic(err)
	}
	report, err := producer.Enqueue(ctx, "media", func(yield func(semantic.FanoutRecord, error) bool) {
		yield(semantic.FanoutRecord{OrganizationID: "acme", RecordID: "42", Version: "2026-06-01T12:00Z", Body: []byte("resize")}, nil)
	})
	fmt.Println(report.Scanned, "scanned,", report.Enqueued, "enqueued", err)
	fmt.Println(<-handled)
	// Output:
	// 1 scanned, 1 enqueued <nil>
	// acme/42: resize
}

// A third party says when to come back: the record and its group wait as long.
func ExampleRetryAfter() {
	handle := func(ctx context.Context, r semantic.FanoutRecord) error {
		err := fmt.Errorf("rate limit exceeded")
		return sqsfanout.RetryAfter(err, 30*time.Second)
	}
	fmt.Println(handle(context.Background(), semantic.FanoutRecord{}))
	// Output: rate limit exceeded
}
