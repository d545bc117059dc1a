package sqsfanout_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is one fake queue in virtual time, the log, and what was signalled.
type rig struct {
	t       *testing.T
	clock   *testkit.Clock
	sqs     *testkit.SQS
	url     string
	dead    string
	log     *testkit.IdempotencyLogBackend
	signals *observability.Signals
	seen    *observer.ObservedLogs
	config  sqsfanout.Config
}

func newRig(t *testing.T) *rig { return newRigWith(t, 10, nil) }

func newRigWith(t *testing.T, maxReceives int, attributes map[string]string) *rig {
	t.Helper()
	clock := testkit.NewClock()
	core, seen := observer.New(zapcore.DebugLevel)
	r := &rig{
		t: t, clock: clock, sqs: testkit.NewSQS(clock), log: testkit.NewIdempotencyLogBackend(clock),
		signals: observability.New(zap.New(testkit.RecordSignals(core))), seen: seen,
	}
	r.url, r.dead = testkit.CreateFIFO(t, r.sqs, "work", maxReceives, attributes)
	r.config = sqsfanout.Config{QueueURL: r.url, API: r.sqs, Clock: clock}
	return r
}

func (r *rig) producer() *sqsfanout.Producer {
	r.t.Helper()
	p, err := sqsfanout.NewProducer(r.config, r.signals)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// enqueue sends records to domain "d" and demands success.
func (r *rig) enqueue(records ...semantic.FanoutRecord) {
	r.t.Helper()
	report, err := r.producer().Enqueue(r.t.Context(), "d", stream(records...))
	if err != nil || report.Enqueued != int64(len(records)) {
		r.t.Fatalf("enqueue: %+v, %v", report, err)
	}
}

// start runs consumers until the test ends.
func (r *rig) start(consumers ...sqsfanout.Consumer) *sqsfanout.Host {
	r.t.Helper()
	h, err := sqsfanout.NewHost(r.config, consumers, r.log.Client(), r.signals)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := h.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := r.stop(h); err != nil {
			r.t.Errorf("stop: %v", err)
		}
	})
	return h
}

// stop stops h while virtual time goes on.
func (r *rig) stop(h *sqsfanout.Host) error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		done <- h.Stop(ctx)
	}()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(time.Millisecond):
			r.clock.Advance(500 * time.Millisecond)
		}
	}
}

// pass lets virtual time go on until ok: in small steps, and in longer ones once many
// did not suffice.
func (r *rig) pass(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for step := 100 * time.Millisecond; !ok(); step = min(step+step/200, 5*time.Second) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within 60 s of real time: %s", what)
		}
		<-time.After(time.Millisecond)
		r.clock.Advance(step)
	}
}

// eventually polls in real time only.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	eventually(r.t, what, ok)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func (r *rig) empty() bool {
	visible, hidden := r.sqs.Depth(r.url)
	return visible+hidden == 0
}

// signalled returns the lines of one signal.
func (r *rig) signalled(key observability.Key) []observer.LoggedEntry {
	return r.seen.FilterField(zap.String("event", string(key))).All()
}

func record(id string) semantic.FanoutRecord {
	return semantic.FanoutRecord{OrganizationID: "org", RecordID: id, Version: "1", Body: []byte("body of " + id)}
}

func grouped(group, id string) semantic.FanoutRecord {
	rec := record(id)
	rec.GroupID = group
	return rec
}

func stream(records ...semantic.FanoutRecord) semantic.Records {
	return func(yield func(semantic.FanoutRecord, error) bool) {
		for _, rec := range records {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// many streams n records of groups in turn, or of a group each for 0 groups.
func many(n, groups int) semantic.Records {
	return iter.Seq2[semantic.FanoutRecord, error](func(yield func(semantic.FanoutRecord, error) bool) {
		for i := range n {
			rec := record(fmt.Sprintf("r%06d", i))
			if groups > 0 {
				rec.GroupID = fmt.Sprintf("g%d", i%groups)
			}
			if !yield(rec, nil) {
				return
			}
		}
	})
}

// journal notes what handlers did, in order.
type journal struct {
	mu   sync.Mutex
	list []string
}

func (j *journal) add(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = append(j.list, what)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.list)
}

func (j *journal) len() int { return len(j.all()) }

func (j *journal) count(what string) (n int) {
	for _, x := range j.all() {
		if x == what {
			n++
		}
	}
	return n
}
