// Package quickstart runs the quickstart against real servers and looks into them afterwards.
package quickstart

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/wrkbelt/coord/testkit"
	"github.com/wrkbelt/coord/testkit/integration/ferret"
)

// build compiles the quickstart once for a test.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "quickstart")
	cmd := exec.Command("go", "build", "-o", program, "./examples/quickstart")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// run runs it with servers in its environment and returns what it printed.
func run(t *testing.T, program string, env []string, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append(args, "-timeout", "7m")...)
	cmd.Env = append(os.Environ(), env...)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(string(out))
	if err != nil {
		t.Fatalf("quickstart: %v\n%.4000s", err, errors.String())
	}
	return lines
}

// servers are the real ones, and what the quickstart needs to know of them.
type servers struct {
	redis    *testkit.RedisServer
	mongoURI string
	sqs      *testkit.Fauxqs
	queueURL string
	env      []string
}

func startAll(t *testing.T) *servers {
	t.Helper()
	s := &servers{redis: testkit.StartRedis(t), mongoURI: ferret.StartFerretDB(t) + "shop", sqs: testkit.StartFauxqs(t)}
	s.queueURL, _ = testkit.CreateFIFO(t, s.sqs.Client, "media", 5, nil)
	s.env = []string{
		"COORD_REDIS_URL=" + s.redis.URL(), "COORD_MONGODB_URI=" + s.mongoURI,
		"COORD_SQS_QUEUE_URL=" + s.queueURL, "COORD_SQS_ENDPOINT_URL=" + s.sqs.Endpoint, "COORD_SQS_REGION=" + s.sqs.Region,
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
	}
	return s
}

func TestOnRealServersEachRecordIsHandledOnceAndTheServersSaySo(t *testing.T) {
	s := startAll(t)
	program := build(t)
	client, err := mongo.Connect(options.Client().ApplyURI(s.mongoURI))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	log := client.Database("shop").Collection("idempotency_log")
	// The replica that dies handles at most ten attachments then, whose records it leaves pending.
	for i, pending := range []int64{0, 10} {
		args := [][]string{{"-records", records(t)}, {"-kill", "-records", records(t)}}[i]
		lines := run(t, program, s.env, args...)
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "records=40 enqueued=30 processed=30 twice=0 malformed=3 gated=") || !strings.HasSuffix(last, " failed=0") {
			t.Errorf("%v: %q", args, last)
		}
		wantRecords(t, log, int64(30*(i+1)), pending)
	}

	// Redis: a lock for each tick that was claimed, and no lease of a run any more.
	ticks, _ := s.redis.Must("KEYS", "coord:lock:{cron-tick:pending-media:*}").([]any)
	if len(ticks) < 6 {
		t.Errorf("%d claimed ticks in Redis, want those of two runs: %v", len(ticks), ticks)
	}
	// SQS: nothing is left, visible or hidden.
	attributes := []types.QueueAttributeName{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"}
	var left string
	for range 100 { // a message of the killed replica is deleted as a duplicate a little later
		got, err := s.sqs.Client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: aws.String(s.queueURL), AttributeNames: attributes})
		if err != nil {
			t.Fatal(err)
		}
		if left = fmt.Sprint(got.Attributes); got.Attributes["ApproximateNumberOfMessages"] == "0" && got.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0" {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Errorf("messages left in SQS ten seconds after the program had ended: %s", left)
}

// wantRecords looks into MongoDB for one record of each attachment of each run, completed
// but for those that a dead replica has left pending. A write of its own that is still
// under way may change one of them meanwhile.
func wantRecords(t *testing.T, log *mongo.Collection, want, pending int64) {
	t.Helper()
	counts := map[string]int64{}
	for range 100 {
		for _, status := range []string{"COMPLETED", "FAILED", "PENDING"} {
			n, err := log.CountDocuments(t.Context(), bson.D{{Key: "status", Value: status}})
			if err != nil {
				t.Fatal(err)
			}
			counts[status] = n
		}
		if counts["COMPLETED"]+counts["PENDING"] == want && counts["FAILED"] == 0 && counts["PENDING"] <= pending {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Errorf("records in MongoDB ten seconds after the program had ended: %v, want %d, none failed and at most %d pending", counts, want, pending)
}

func TestEachRealServerAlone(t *testing.T) {
	s := startAll(t)
	program := build(t)
	for name, part := range map[string][]string{"redis": s.env[:1], "mongodb": s.env[1:2], "sqs": s.env[2:]} {
		t.Run(name, func(t *testing.T) {
			lines := run(t, program, part, "-records", records(t))
			if last := lines[len(lines)-1]; last != "records=40 enqueued=30 processed=30 twice=0 malformed=3 gated=6 failed=0" {
				t.Errorf("%q", last)
			}
		})
	}
}

// records writes a file that the test's MongoDB server can keep up with: FerretDB reads a
// whole collection for each call. 30 attachments, ten of them twice, three bad lines.
func records(t *testing.T) string {
	t.Helper()
	var lines strings.Builder
	for i := range 40 {
		line, _ := json.Marshal(map[string]any{"organization_id": fmt.Sprint("org-", i%5), "attachment_id": fmt.Sprint("att-", i%30), "version": 1, "status": "pending"})
		fmt.Fprintf(&lines, "%s\n", line)
		if i%15 == 10 {
			lines.WriteString("not a record\n")
		}
	}
	lines.WriteString("{}\n")
	file := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
