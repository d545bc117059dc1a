package sqsfanout_test

import (
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// queueReader is a producer and a reader of its queue, over any SQS.
type queueReader struct {
	*sqsfanout.Producer
	client testkit.SQSClient
	url    string
}

func (q queueReader) Take(t testkit.T) (all []testkit.QueuedRecord) {
	for {
		out, err := q.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &q.url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		if len(out.Messages) == 0 {
			return all
		}
		for _, m := range out.Messages {
			domain, r, err := sqsfanout.Decode(m)
			if err != nil {
				t.Fatalf("decode: %v", err)
			}
			all = append(all, testkit.QueuedRecord{Domain: domain, Record: r})
			if _, err := q.client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &q.url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatalf("delete: %v", err)
			}
		}
	}
}

func replicas(t testkit.T, n int, client testkit.SQSClient, config sqsfanout.Config) []testkit.FanoutQueue {
	config.QueueURL, _ = testkit.CreateFIFO(t, client, "fanout-"+rand.Text(), 5, nil)
	config.API = client
	all := make([]testkit.FanoutQueue, n)
	for i := range all {
		p, err := sqsfanout.NewProducer(config, nil)
		if err != nil {
			t.Fatalf("producer: %v", err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatalf("start: %v", err)
		}
		all[i] = queueReader{p, client, config.QueueURL}
	}
	return all
}

// sendFault maps the suite's faults to what happens to sends.
func sendFault(fake *testkit.SQS, f testkit.Fault) (heal func()) {
	var once atomic.Bool
	fake.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
		if call.Operation != "SendMessageBatch" {
			return testkit.SQSFault{}
		}
		switch f {
		case testkit.FaultDown:
			return testkit.SQSFault{Refuse: true}
		case testkit.FaultLoseReplies:
			return testkit.SQSFault{LoseReply: true}
		case testkit.FaultLoseReply:
			return testkit.SQSFault{LoseReply: !once.Swap(true)}
		default:
			return testkit.SQSFault{Hang: true}
		}
	})
	return func() { fake.SetFault(nil) }
}

// quick is a clock on which waiting costs nothing: its timers fire at once.
type quick struct{ *testkit.Clock }

func (q quick) AfterFunc(_ time.Duration, f func()) (stop func() bool) {
	return q.Clock.AfterFunc(0, f)
}

func TestProducer_keeps_the_contract_of_Fanout(t *testing.T) {
	clock := testkit.NewClock()
	var fake *testkit.SQS
	testkit.RunFanout(t, testkit.Backend[testkit.FanoutQueue]{
		New: func(t testkit.T, n int) []testkit.FanoutQueue {
			fake = testkit.NewSQS(clock)
			return replicas(t, n, fake, sqsfanout.Config{Clock: quick{clock}, Attempts: 3})
		},
		Advance: clock.Advance,
		Fault:   func(_ testkit.T, f testkit.Fault) (heal func()) { return sendFault(fake, f) },
	})
}

func TestProducer_keeps_the_contract_of_Fanout_on_fauxqs(t *testing.T) {
	f := testkit.StartFauxqs(t)
	backend := testkit.Backend[testkit.FanoutQueue]{
		New: func(t testkit.T, n int) []testkit.FanoutQueue {
			return replicas(t, n, f.Client, sqsfanout.Config{})
		},
		Advance: time.Sleep, // a real backend's clock
	}
	testkit.RunFanout(t, backend)
}
