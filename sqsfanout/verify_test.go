package sqsfanout_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

var allAttributes = []types.QueueAttributeName{types.QueueAttributeNameAll}

// described is a queue with other attributes than the fake would let it have.
type described struct {
	*testkit.SQS
	change func(a map[string]string)
}

func (d described) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	out, err := d.SQS.GetQueueAttributes(ctx, in)
	if err == nil {
		d.change(out.Attributes)
	}
	return out, err
}

func TestStart_names_the_attribute_that_does_not_fit(t *testing.T) {
	for _, c := range []struct {
		name, attribute string
		change          map[string]string
		consumerOnly    bool
	}{
		{"standard queue", "FifoQueue", map[string]string{"FifoQueue": ""}, false},
		{"unknown deduplication scope", "DeduplicationScope", map[string]string{"DeduplicationScope": "planet"}, false},
		{"throughput limit without its scope", "DeduplicationScope", map[string]string{"FifoThroughputLimit": "perMessageGroupId"}, false},
		{"no visibility", "VisibilityTimeout", map[string]string{"VisibilityTimeout": "0"}, true},
		{"no redrive", "RedrivePolicy", map[string]string{"RedrivePolicy": ""}, true},
		{"redrive at once", "RedrivePolicy", map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"a","maxReceiveCount":2}`}, true},
		{"redrive that cannot be read", "RedrivePolicy", map[string]string{"RedrivePolicy": `{`}, true},
		{"retention beyond the log's", "MessageRetentionPeriod", map[string]string{"MessageRetentionPeriod": "1209600"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.config.API = described{r.sqs, func(a map[string]string) { maps.Copy(a, c.change) }}
			short := consumer(func(context.Context, semantic.FanoutRecord) error { return nil })
			short.RememberDays = 7
			h, err := sqsfanout.NewHost(r.config, []sqsfanout.Consumer{short}, r.log.Client(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var named *sqsfanout.QueueError
			if err := h.Start(t.Context()); !errors.As(err, &named) || named.Attribute != c.attribute || named.QueueURL != r.url {
				t.Errorf("consumer's start: %v, want an error about %s", err, c.attribute)
			}
			err = r.producer().Start(t.Context())
			if c.consumerOnly != (err == nil) {
				t.Errorf("producer's start: %v", err)
			}
			if !c.consumerOnly {
				read := false
				_, err := r.producer().Enqueue(t.Context(), "d", func(func(semantic.FanoutRecord, error) bool) { read = true })
				if !errors.As(err, &named) || read {
					t.Errorf("enqueue without start: %v, scan read %v", err, read)
				}
			}
		})
	}
}

func TestStart_accepts_older_policies_and_what_was_allowed(t *testing.T) {
	for name, change := range map[string]map[string]string{
		"count as a string":  {"RedrivePolicy": `{"deadLetterTargetArn":"a","maxReceiveCount":"5"}`},
		"high throughput":    {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"},
		"no redrive allowed": {"RedrivePolicy": ""},
	} {
		r := newRig(t)
		r.config.API = described{r.sqs, func(a map[string]string) { maps.Copy(a, change) }}
		r.config.AllowNoRedrive = name == "no redrive allowed"
		h, err := sqsfanout.NewHost(r.config, []sqsfanout.Consumer{consumer(func(context.Context, semantic.FanoutRecord) error { return nil })}, r.log.Client(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Start(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := r.stop(h); err != nil {
			t.Error(err)
		}
	}
}

func TestStart_of_an_unreachable_queue_fails_in_time(t *testing.T) {
	r := newRig(t)
	r.config.CallTimeout = 100 * time.Millisecond
	r.sqs.SetFault(func(testkit.SQSCall) testkit.SQSFault { return testkit.SQSFault{Hang: true} })
	if err := r.producer().Start(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), r.url) {
		t.Errorf("error is %v", err)
	}
}

func TestConfig_names_every_setting_that_is_out_of_range_and_no_secret(t *testing.T) {
	_, err := sqsfanout.Config{
		QueueURL: "https://user:hunter2@host/q", EndpointURL: "ftp://host", Queues: map[string]string{"d": "", "e": "https://:hunter2@h"},
		Concurrency: 101, Attempts: -1, CallTimeout: time.Hour, PollWait: 1500 * time.Millisecond,
	}.Settled()
	for _, want := range []string{"QueueURL", "EndpointURL", `Queues["d"]`, `Queues["e"]`, "Concurrency", "Attempts", "CallTimeout", "PollWait"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error repeats a password: %v", err)
	}
	_, err = sqsfanout.Config{QueueURL: "https://host/1/standard"}.Settled()
	if err == nil || !strings.Contains(err.Error(), `sqs QueueURL: "https://host/1/standard": want`) || !strings.Contains(err.Error(), ".fifo") {
		t.Errorf("a queue that is no FIFO queue: %v", err)
	}
	got, err := sqsfanout.Config{}.Settled()
	if err != nil || got.Concurrency != 4 || got.Attempts != 5 || got.CallTimeout != 10*time.Second || got.PollWait != 5*time.Second {
		t.Errorf("defaults are %+v, %v", got, err)
	}
}

func TestProducer_without_a_queue_names_the_setting(t *testing.T) {
	p, err := sqsfanout.NewProducer(sqsfanout.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "COORD_SQS_QUEUE_URL") {
		t.Errorf("start: %v", err)
	}
	if _, err := p.Enqueue(t.Context(), "d", many(1, 0)); err == nil || !strings.Contains(err.Error(), "QueueURL") {
		t.Errorf("enqueue: %v", err)
	}
}

// The client of the default chain is made at start, not before, and does not repeat a
// send by itself: the producer does, entry by entry.
func TestClient_of_the_default_chain(t *testing.T) {
	var sends, others atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		if strings.HasSuffix(req.Header.Get("X-Amz-Target"), "SendMessageBatch") {
			sends.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if others.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // reads are repeated
			return
		}
		_, _ = w.Write([]byte(`{"Attributes":{"FifoQueue":"true"}}`))
	}))
	defer server.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	config := sqsfanout.Config{QueueURL: server.URL + "/1/q.fifo", EndpointURL: server.URL, Attempts: 2}

	p, err := sqsfanout.NewProducer(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "Region") {
		t.Errorf("without a region: %v", err)
	}
	config.Region = "us-east-1"
	if p, err = sqsfanout.NewProducer(config, nil); err != nil {
		t.Fatal(err)
	}
	if sends.Load()+others.Load() != 0 {
		t.Errorf("there was traffic before the start")
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	report, err := p.Enqueue(t.Context(), "d", many(1, 0))
	if err != nil || report.Failed != 1 || report.Failures[0].Code != sqsfanout.CodeUnknown || !errors.Is(report.Failures[0].Err, semantic.ErrUnknown) {
		t.Fatalf("report %+v, %v", report, err)
	}
	if sends.Load() != 2 || report.Calls != 2 {
		t.Errorf("%d requests and %d calls, want 2: one for each attempt", sends.Load(), report.Calls)
	}
	if strings.Contains(report.Failures[0].Err.Error(), "hunter2") {
		t.Errorf("error repeats a secret")
	}
}
