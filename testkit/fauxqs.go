package testkit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/wrkbelt/coord/testkit/internal/process"
)

// Fauxqs is a running fauxqs, an SQS emulator written by others: a second opinion on
// [SQS] and on what is built upon it, over real HTTP.
type Fauxqs struct {
	Client   *sqs.Client
	Endpoint string // http://127.0.0.1:port
	Region   string
}

// FauxqsDivergences are the cases of [SQSCases] that fauxqs 1.9 fails, and why. A test
// shows that it really does, so that the list cannot outlive its reasons.
func FauxqsDivergences() map[string]string {
	return map[string]string{
		"the same deduplication id in another group is delivered when the scope is the group": "ignores DeduplicationScope",
		"the same attempt id receives the same messages again":                                "ignores ReceiveRequestAttemptId",
		"characters beyond the basic plane are allowed":                                       "refuses surrogate pairs",
		"a group or deduplication id with a space or of 129 characters fails its entry":       "checks neither",
		"more than 12 hours of visibility in all are refused":                                 "checks only the single value",
		"a receipt whose visibility timeout has passed deletes nothing":                       "answers that it did, though it did not",
		"one receive takes several messages of a group in their order":                        "takes one of each group",
	}
}

// StartFauxqs starts fauxqs on a free port and stops it when the test ends. Where it is
// not installed the test is skipped, or fails if CI=true.
func StartFauxqs(t *testing.T) *Fauxqs {
	t.Helper()
	program := RequireProgram(t, "fauxqs", "npm install -g fauxqs@1.9.2")
	port, err := process.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	server, err := process.Start(process.Spec{
		Path: program, Env: []string{fmt.Sprintf("FAUXQS_PORT=%d", port.Number()), "FAUXQS_LOGGER=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	f := &Fauxqs{Endpoint: "http://" + port.Address(), Region: "us-east-1"}
	transport := &closingClient{}
	t.Cleanup(transport.close)
	f.Client = sqs.New(sqs.Options{
		BaseEndpoint: &f.Endpoint, Region: f.Region, HTTPClient: transport.client(),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		Retryer:     aws.NopRetryer{},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		_, err := f.Client.ListQueues(ctx, &sqs.ListQueuesInput{})
		if err == nil {
			return f
		}
		select {
		case <-ctx.Done():
			t.Fatalf("fauxqs did not answer within 30 s: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
