package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// backends are the servers that the three replicas share: those that the environment
// names, and embedded ones in the place of the others.
type backends struct {
	config coordfx.Config
	api    sqsfanout.API
	log    func() semantic.IdempotencyLog // nil: MongoDB
	names  string
	close  func()
}

func openBackends(ctx context.Context) (*backends, error) {
	config, err := coordfx.ConfigFromEnv()
	if err != nil {
		return nil, err
	}
	b := &backends{config: config, close: func() {}}
	redis, log, queue := "your Redis", "your MongoDB", "your SQS queue"

	if config.SQS.QueueURL == "" {
		queue = "embedded queue"
		fake := testkit.NewSQS(nil)
		if b.config.SQS.QueueURL, err = createQueue(ctx, fake); err != nil {
			return nil, err
		}
		b.api = fake
	} else if b.api, err = dialQueue(ctx, config.SQS); err != nil {
		return nil, err
	}
	if config.Mongo.URI == "" {
		log = "in-memory log"
		memory := testkit.NewIdempotencyLogBackend(nil)
		b.log = func() semantic.IdempotencyLog { return memory.Client() }
	}
	if config.Redis.URL == "" && len(config.Redis.Addresses) == 0 {
		redis = "embedded Redis"
		embedded, err := testkit.LaunchEmbeddedRedis()
		if err != nil {
			return nil, err
		}
		b.config.Redis.URL = embedded.URL()
		b.close = embedded.Close
	}
	b.names = fmt.Sprintf("%s, %s, %s", redis, log, queue)
	return b, nil
}

// createQueue makes a FIFO queue with a dead-letter queue.
func createQueue(ctx context.Context, fake *testkit.SQS) (queueURL string, err error) {
	dead, err := fake.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: aws.String("media-dead.fifo"), Attributes: map[string]string{"FifoQueue": "true"},
	})
	if err != nil {
		return "", err
	}
	arn, err := fake.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: dead.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return "", err
	}
	queue, err := fake.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: aws.String("media.fifo"),
		Attributes: map[string]string{
			"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId",
			"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":5}`, arn.Attributes["QueueArn"]),
		},
	})
	if err != nil {
		return "", err
	}
	return *queue.QueueUrl, nil
}

// dialQueue makes a client for a real queue. A service leaves that to Coord; this
// program stands between the client and the queue to count and to cut.
func dialQueue(ctx context.Context, c sqsfanout.Config) (sqsfanout.API, error) {
	loaded, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	if c.Region != "" {
		loaded.Region = c.Region
	}
	if loaded.Region == "" {
		return nil, errors.New("the queue's region is not set: want COORD_SQS_REGION or AWS_REGION")
	}
	return sqs.NewFromConfig(loaded, func(o *sqs.Options) {
		if c.EndpointURL != "" {
			o.BaseEndpoint = aws.String(c.EndpointURL)
		}
	}), nil
}
