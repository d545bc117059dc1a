package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// elsewhere is a queue that keeps its messages out of this process.
type elsewhere struct {
	*testkit.SQS
	accepted int
}

func (e *elsewhere) SendMessageBatch(_ context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	out := &sqs.SendMessageBatchOutput{}
	for i := range in.Entries {
		out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: in.Entries[i].Id, MessageId: in.Entries[i].Id})
	}
	e.accepted += len(in.Entries)
	return out, nil
}

// TestAFileOfFiftyThousandRecordsIsFannedOutInLittleHeap: from the file through the job's
// scan and the producer, with all that the replica remembers of it.
func TestAFileOfFiftyThousandRecordsIsFannedOutInLittleHeap(t *testing.T) {
	const records, limit = 50_000, 64 << 20
	path := filepath.Join(t.TempDir(), "many.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(file)
	for i := range records {
		fmt.Fprintf(w, `{"organization_id":"org-%d","attachment_id":"attachment-%06d","version":1,"status":"pending","url":"%0200d"}`+"\n", i%5, i, i)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	heap := &peak{}
	f := &recordFile{path: path}
	if err := f.census(); err != nil || f.distinct != records {
		t.Fatalf("census: %+v, %v", f, err)
	}
	fake := testkit.NewSQS(nil)
	url, err := createQueue(t.Context(), fake)
	if err != nil {
		t.Fatal(err)
	}
	away := &elsewhere{SQS: fake}
	queued := &idSet{ids: map[string]struct{}{}}
	producer, err := sqsfanout.NewProducer(sqsfanout.Config{
		QueueURL: url, Concurrency: 1,
		API: &queue{API: away, net: &network{conns: map[net.Conn]struct{}{}}, accepted: queued},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	line := 0
	report, err := producer.Enqueue(t.Context(), "media", f.pending(t.Context(), func(string) bool { return false }, func() error {
		if line++; line%250 == 0 {
			heap.sample()
		}
		return nil
	}))
	if err != nil || report.Enqueued != records || away.accepted != records || queued.size() != records {
		t.Fatalf("%+v, %v; the queue took %d, %d remembered; want %d", report, err, away.accepted, queued.size(), records)
	}
	grown := int64(heap.bytes) - int64(before.HeapAlloc)
	t.Logf("%d records, the heap grew by %.1f MiB at most", records, float64(grown)/(1<<20))
	if grown > limit {
		t.Errorf("the heap grew by %d MiB for %d records, want less than %d", grown>>20, records, limit>>20)
	}
}
