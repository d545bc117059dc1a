package sqsfanout_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

func TestProducer_batches_by_count_and_bytes(t *testing.T) {
	r := quickRig(t)
	biggest := 0
	r.sends(func(_ int, in *sqs.SendMessageBatchInput) testkit.SQSFault {
		bytes := 0
		for _, e := range in.Entries {
			bytes += len(*e.MessageBody)
			for name, value := range e.MessageAttributes {
				bytes += len(name) + len(*value.DataType) + len(*value.StringValue)
			}
		}
		biggest = max(biggest, bytes)
		if len(in.Entries) > 10 || bytes > 1<<20 {
			t.Errorf("a batch has %d entries of %d bytes", len(in.Entries), bytes)
		}
		return testkit.SQSFault{}
	})
	report, err := r.producer().Enqueue(t.Context(), "d", func(yield func(semantic.FanoutRecord, error) bool) {
		for i := range 40 {
			rec := record(fmt.Sprint(i))
			rec.Body = []byte(strings.Repeat("x", i*10_000))
			if !yield(rec, nil) {
				return
			}
		}
	})
	if err != nil || report.Enqueued != 40 {
		t.Errorf("report %+v, %v", report, err)
	}
	if biggest < 1<<19 {
		t.Errorf("the biggest batch has only %d bytes", biggest)
	}
}

func TestProducer_record_too_large_for_the_queue_fails_alone(t *testing.T) {
	r := newRigWith(t, 10, map[string]string{"MaximumMessageSize": "2048"})
	big := record("big")
	big.Body = []byte(strings.Repeat("x", 2048))
	report, err := r.producer().Enqueue(t.Context(), "d", stream(record("a"), big, record("b")))
	if err != nil || report.Enqueued != 2 || report.Failed != 1 {
		t.Fatalf("report %+v, %v", report, err)
	}
	if f := report.Failures[0]; f.Code != sqsfanout.CodeInvalid || !errors.Is(f.Err, semantic.ErrTooLarge) {
		t.Errorf("failure is %+v", f)
	}
}

func TestProducer_halves_a_batch_that_the_queue_finds_too_long(t *testing.T) {
	r := quickRig(t)
	r.sends(func(_ int, in *sqs.SendMessageBatchInput) testkit.SQSFault {
		if len(in.Entries) > 2 || slices.Contains(dedupIDs(in), sqsfanout.DeduplicationID("d", record("r000003"))) {
			return testkit.SQSFault{Err: &types.BatchRequestTooLong{}}
		}
		return testkit.SQSFault{}
	})
	report, err := r.producer().Enqueue(t.Context(), "d", many(8, 0))
	if err != nil || report.Enqueued != 7 || report.Failed != 1 || report.Failures[0].Code != "BatchRequestTooLong" {
		t.Errorf("report %+v, %v", report, err)
	}
}

func TestProducer_needs_at_most_a_call_for_ten_records(t *testing.T) {
	r := quickRig(t)
	report, err := r.producer().Enqueue(t.Context(), "d", many(10_000, 0))
	if err != nil || report.Enqueued != 10_000 || report.Calls > 1_000 {
		t.Errorf("enqueued %d in %d calls, %v", report.Enqueued, report.Calls, err)
	}
}

func TestProducer_memory_does_not_grow_with_the_number_of_records(t *testing.T) {
	r := quickRig(t)
	const n = 50_000
	body := []byte(strings.Repeat("x", 4096)) // 200 MiB in all
	discard := &discarding{SQS: r.sqs}
	r.config.API = discard
	var peak uint64
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	start := stats.HeapAlloc
	report, err := r.producer().Enqueue(t.Context(), "d", func(yield func(semantic.FanoutRecord, error) bool) {
		for i := range n {
			rec := record(fmt.Sprint(i))
			rec.Body = body
			if !yield(rec, nil) {
				return
			}
			if i%5000 == 0 {
				runtime.GC()
				runtime.ReadMemStats(&stats)
				peak = max(peak, stats.HeapAlloc)
			}
		}
	})
	if err != nil || report.Enqueued != n {
		t.Fatalf("report %+v, %v", report, err)
	}
	if grown := int64(peak) - int64(start); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// discarding accepts every message and keeps none.
type discarding struct{ *testkit.SQS }

func (d *discarding) SendMessageBatch(_ context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	out := &sqs.SendMessageBatchOutput{}
	for _, e := range in.Entries {
		out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

func TestProducer_keeps_to_its_concurrency(t *testing.T) {
	r := newRig(t)
	r.config.Concurrency = 3
	busy := &gauge{SQS: r.sqs}
	r.config.API = busy
	report, err := r.producer().Enqueue(t.Context(), "d", many(500, 0))
	if err != nil || report.Enqueued != 500 {
		t.Fatalf("report %+v, %v", report, err)
	}
	if most := busy.most.Load(); most != 3 {
		t.Errorf("at most %d requests were in flight, want exactly 3", most)
	}
}

// gauge measures how many sends are in flight at once.
type gauge struct {
	*testkit.SQS
	now, most atomic.Int64
}

func (g *gauge) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	now := g.now.Add(1)
	defer g.now.Add(-1)
	for {
		most := g.most.Load()
		if now <= most || g.most.CompareAndSwap(most, now) {
			break
		}
	}
	for range 100 {
		runtime.Gosched()
	}
	return g.SQS.SendMessageBatch(ctx, in)
}
