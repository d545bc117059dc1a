package sqsfanout_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/wrkbelt/coord/observability/health"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
)

// unreadable is a queue whose attributes cannot be read while it is down.
type unreadable struct {
	sqsfanout.API
	down atomic.Bool
}

func (u *unreadable) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, o ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	if u.down.Load() {
		return nil, errors.New("no answer from https://user:hunter2@queue")
	}
	return u.API.GetQueueAttributes(ctx, in, o...)
}

func TestHealthFollowsTheQueue(t *testing.T) {
	r, h := newRig(t), health.New()
	queue := &unreadable{API: r.sqs}
	r.config.API, r.config.Health = queue, h
	want := func(when, name string, state health.State) {
		t.Helper()
		f, ok := h.Check(t.Context()).Part(name)
		if !ok || f.State != state || (state == health.Failing && (f.Err == nil || f.Cause == "" || strings.Contains(f.Cause, "hunter2"))) {
			t.Errorf("%s: %s is %+v, want %s", when, name, f, state)
		}
	}
	p := r.producer()
	want("before the start", "sqs_producer", health.NotStarted)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	host := r.start(sqsfanout.Consumer{Domain: "d", Handle: func(context.Context, semantic.FanoutRecord) error { return nil }})
	for _, name := range []string{"sqs_producer", "sqs_consumer"} {
		want("started", name, health.OK)
		queue.down.Store(true)
		want("the queue is down", name, health.Failing)
		queue.down.Store(false)
		want("it is back", name, health.OK)
	}
	p.Close()
	want("closed", "sqs_producer", health.Closed)
	if err := r.stop(host); err != nil {
		t.Fatal(err)
	}
	want("stopped", "sqs_consumer", health.NotStarted)
}

func TestAHostWithoutConsumersIsNotWatched(t *testing.T) {
	h := health.New()
	if _, err := sqsfanout.NewHost(sqsfanout.Config{Health: h}, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if r := h.Check(t.Context()); len(r.Parts) != 0 {
		t.Errorf("%+v", r)
	}
}
