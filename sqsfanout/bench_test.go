package sqsfanout_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// BenchmarkProducer is the producer's own cost for a record: the queue takes no time.
func BenchmarkProducer(b *testing.B) {
	fake := testkit.NewSQS(nil)
	url := benchQueue(b, fake)
	p, err := sqsfanout.NewProducer(sqsfanout.Config{QueueURL: url, API: &discarding{fake}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if report, err := p.Enqueue(b.Context(), "d", many(b.N, 0)); err != nil || report.Enqueued != int64(b.N) {
		b.Fatal(report, err)
	}
}

// BenchmarkConsumer is a record's way through the fake queue, the in-memory log, a
// handler that does nothing, and the deletion.
func BenchmarkConsumer(b *testing.B) {
	fake := testkit.NewSQS(nil)
	url := benchQueue(b, fake)
	config := sqsfanout.Config{QueueURL: url, API: fake}
	p, err := sqsfanout.NewProducer(config, nil)
	if err != nil {
		b.Fatal(err)
	}
	if report, err := p.Enqueue(b.Context(), "d", many(b.N, 0)); err != nil || report.Enqueued != int64(b.N) {
		b.Fatal(report, err)
	}
	done := make(chan struct{})
	var n atomic.Int64
	h, err := sqsfanout.NewHost(config, []sqsfanout.Consumer{{Domain: "d", Concurrency: 20, Handle: func(context.Context, semantic.FanoutRecord) error {
		if n.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	}}}, testkit.NewIdempotencyLogBackend(nil).Client(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := h.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	<-done
	b.StopTimer()
	if err := h.Stop(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func benchQueue(b *testing.B, fake *testkit.SQS) string {
	url, _ := testkit.CreateFIFO(b, fake, "bench", 10, nil)
	return url
}
