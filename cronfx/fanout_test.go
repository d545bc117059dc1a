package cronfx_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wrkbelt/coord/cronfx"
	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// queue is a semantic.Fanout that reads on a goroutine of its own, as a real one may.
type queue struct {
	mu     sync.Mutex
	sent   []string // domain/organisation/record
	refuse string   // this record is not accepted
	err    error    // or nothing is
}

func (q *queue) Enqueue(ctx context.Context, domain string, records semantic.Records) (report semantic.FanoutReport, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for r, e := range records {
			switch {
			case e != nil && !semantic.IsSkipped(e):
				err = e
				return
			case ctx.Err() != nil:
				err = ctx.Err()
				return
			case q.err != nil:
				err = q.err
				return
			}
			report.Scanned++
			switch {
			case e != nil:
				report.Skipped++
			case r.RecordID == q.refuse:
				report.Failed++
				report.Failures = append(report.Failures, semantic.FanoutFailure{OrganizationID: r.OrganizationID, RecordID: r.RecordID, Code: "INVALID", Err: errBoom})
			default:
				report.Enqueued++
				q.mu.Lock()
				q.sent = append(q.sent, domain+"/"+r.OrganizationID+"/"+r.RecordID)
				q.mu.Unlock()
			}
		}
	}()
	<-done
	return report, err
}

func (q *queue) list() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return strings.Join(q.sent, " ")
}

// records yields n records of an organisation, then panics if told to.
func records(organization string, n int, thenPanic bool) semantic.Records {
	return func(yield func(semantic.FanoutRecord, error) bool) {
		for i := range n {
			if !yield(semantic.FanoutRecord{OrganizationID: organization, RecordID: fmt.Sprint("r", i)}, nil) {
				return
			}
		}
		if thenPanic {
			panic(errBoom)
		}
	}
}

func fanoutCluster(t *testing.T, n int, q *queue, change func(j *cronfx.FanoutJob)) *cluster {
	j := cronfx.FanoutJob{
		Name: "pending", Schedule: "*/10 * * * *", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip},
		Scan:             func(context.Context, cronfx.Tick) semantic.Records { return records("org", 3, false) },
		ScanOrganization: func(_ context.Context, id string) semantic.Records { return records(id, 2, false) },
	}
	if change != nil {
		change(&j)
	}
	return newCluster(t, n, one(j), func(_ int, p *cronfx.Params) {
		p.Fanout = func() (semantic.Fanout, error) { return q, nil }
	})
}

func TestTheWinnerQueuesWhatTheScanYieldsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		c := fanoutCluster(t, 5, q, func(j *cronfx.FanoutJob) { j.Domain = "media" })
		c.start()
		time.Sleep(10*time.Minute + time.Second)
		if got := q.list(); got != "media/org/r0 media/org/r1 media/org/r2" {
			t.Errorf("queued %q", got)
		}
		if r := c.ledger.find(t, cronfx.OutcomeCompleted); r.Fanout == nil || r.Fanout.Scanned != 3 || r.Fanout.Enqueued != 3 {
			t.Errorf("record %+v, want its counts", r)
		}
		if n := c.ledger.count(cronfx.OutcomeGated); n != 4 {
			t.Errorf("%d gated, want 4", n)
		}
		c.stop()
	})
}

func TestAFanoutThatDoesNotQueueEverythingFails(t *testing.T) {
	for name, c := range map[string]struct {
		queue  *queue
		change func(j *cronfx.FanoutJob)
		is     error
		counts semantic.FanoutReport
	}{
		"a record is refused": {&queue{refuse: "r1"}, nil, errBoom, semantic.FanoutReport{Scanned: 3, Enqueued: 2, Failed: 1}},
		"the queue is down":   {&queue{err: semantic.ErrUnavailable}, nil, semantic.ErrUnavailable, semantic.FanoutReport{}},
		"the scan panics on its way": {&queue{}, func(j *cronfx.FanoutJob) {
			j.Scan = func(context.Context, cronfx.Tick) semantic.Records { return records("org", 2, true) }
		}, errBoom, semantic.FanoutReport{Scanned: 2, Enqueued: 2}},
		"the scan panics at once": {&queue{}, func(j *cronfx.FanoutJob) {
			j.Scan = func(context.Context, cronfx.Tick) semantic.Records { panic(errBoom) }
		}, errBoom, semantic.FanoutReport{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := fanoutCluster(t, 1, c.queue, c.change)
				cl.start()
				time.Sleep(10*time.Minute + time.Second)
				r := cl.ledger.find(t, cronfx.OutcomeFailed)
				if !errors.Is(r.Err, c.is) {
					t.Errorf("error %v, want %v", r.Err, c.is)
				}
				if got := r.Fanout; got != nil && (got.Scanned != c.counts.Scanned || got.Enqueued != c.counts.Enqueued || got.Failed != c.counts.Failed) || got == nil && c.counts.Scanned > 0 {
					t.Errorf("counts %+v, want %+v", got, c.counts)
				}
				cl.stop()
			})
		})
	}
}

func TestAScanThatYieldsNothingIsASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		c := fanoutCluster(t, 1, q, func(j *cronfx.FanoutJob) {
			j.Scan = func(context.Context, cronfx.Tick) semantic.Records { return nil }
		})
		c.start()
		time.Sleep(10*time.Minute + time.Second)
		c.ledger.find(t, cronfx.OutcomeCompleted)
		c.stop()
	})
}

func TestTryEnqueueOrgJobGatesAnOrganisationForTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		c := fanoutCluster(t, 3, q, nil) // never started: the gate needs no tick
		try := func(replica int, org string, want cronfx.EnqueueGateResult) {
			t.Helper()
			got, err := c.runners[replica].TryEnqueueOrgJob(t.Context(), "pending", org)
			if got != want || err != nil {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		}
		try(0, "acme", cronfx.Enqueued)
		if holder := c.lock.Holder("cron-fanout:pending:acme"); holder != "replica-0" {
			t.Errorf("the key cron-fanout:pending:acme is held by %q", holder)
		}
		if n := c.lock.Keys(); n != 1 {
			t.Errorf("%d keys, want that one only", n)
		}
		try(0, "acme", cronfx.Gated)
		try(1, "acme", cronfx.Gated)
		try(1, "globex", cronfx.Enqueued)       // another organisation is another gate
		time.Sleep(8*time.Minute - time.Second) // the default is 80 % of the ten minutes
		try(2, "acme", cronfx.Gated)
		time.Sleep(time.Second)
		try(2, "acme", cronfx.Enqueued)
		if got := q.list(); got != "pending/acme/r0 pending/acme/r1 pending/globex/r0 pending/globex/r1 pending/acme/r0 pending/acme/r1" {
			t.Errorf("queued %q", got)
		}
	})
}

// The handler of a plain job fans out by tenant: each organisation has its own gate,
// closed for longer than one tick.
func TestAHandlerCanFanOutByTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		var results []string
		byTenant := cronfx.Job{Name: "by-tenant", Schedule: "* * * * *", Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip}, Run: func(ctx context.Context, tick cronfx.Tick) error {
			for _, org := range []string{"acme", "globex"} {
				result, err := tick.Organizations.TryEnqueueOrgJob(ctx, "pending", org)
				if err != nil {
					return err
				}
				results = append(results, string(result))
			}
			return nil
		}}
		pending := cronfx.FanoutJob{
			Name: "pending", Schedule: "0 0 1 1 *", Cooldown: 90 * time.Second, Scan: scanNone, Policies: cronfx.Policies{Misfire: cronfx.MisfireSkip},
			ScanOrganization: func(_ context.Context, id string) semantic.Records { return records(id, 1, false) },
		}
		c := newCluster(t, 3, func(*cluster) []cronfx.Definition { return []cronfx.Definition{byTenant, pending} }, func(_ int, p *cronfx.Params) {
			p.Fanout = func() (semantic.Fanout, error) { return q, nil }
		})
		c.start()
		time.Sleep(3*time.Minute + time.Second)
		c.stop()
		if got := strings.Join(results, " "); got != "ENQUEUED ENQUEUED GATED GATED ENQUEUED ENQUEUED" {
			t.Errorf("results of three ticks: %s", got)
		}
	})
}

func TestConcurrentTriesOfOneOrganisationQueueItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		c := fanoutCluster(t, 5, q, nil)
		results := make(chan cronfx.EnqueueGateResult, 50)
		for i := range 50 {
			go func() {
				r, err := c.runners[i%5].TryEnqueueOrgJob(t.Context(), "pending", "acme")
				if err != nil {
					t.Error(err)
				}
				results <- r
			}()
		}
		counts := map[cronfx.EnqueueGateResult]int{}
		for range 50 {
			counts[<-results]++
		}
		if counts[cronfx.Enqueued] != 1 || counts[cronfx.Gated] != 49 {
			t.Errorf("results %v", counts)
		}
	})
}

func TestAFailedTryOpensTheGateAgain(t *testing.T) {
	for name, c := range map[string]struct {
		queue  *queue
		change func(j *cronfx.FanoutJob)
		is     error
	}{
		"a record is refused": {&queue{refuse: "r1"}, nil, errBoom},
		"the queue is down":   {&queue{err: semantic.ErrUnavailable}, nil, semantic.ErrUnavailable},
		"the scan panics": {&queue{}, func(j *cronfx.FanoutJob) {
			j.ScanOrganization = func(context.Context, string) semantic.Records { panic(errBoom) }
		}, errBoom},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := fanoutCluster(t, 1, c.queue, c.change)
				for range 2 {
					got, err := cl.runners[0].TryEnqueueOrgJob(t.Context(), "pending", "acme")
					if got != cronfx.Failed || !errors.Is(err, c.is) {
						t.Errorf("got %s, %v, want FAILED and %v", got, err, c.is)
					}
				}
				if n := cl.lock.Keys(); n != 0 {
					t.Errorf("%d keys are left", n)
				}
			})
		})
	}
}

func TestAGateThatCannotSayQueuesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		c := fanoutCluster(t, 1, q, nil)
		c.lock.Inject(testkit.FaultDown)
		got, err := c.runners[0].TryEnqueueOrgJob(t.Context(), "pending", "acme")
		if got != cronfx.Failed || !errors.Is(err, semantic.ErrUnavailable) || q.list() != "" {
			t.Errorf("got %s, %v, queued %q", got, err, q.list())
		}
	})
}

func TestTryEnqueueOrgJobRefusesBadArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fanoutCluster(t, 1, &queue{}, nil)
		bare := fanoutCluster(t, 1, &queue{}, func(j *cronfx.FanoutJob) { j.ScanOrganization = nil })
		for _, b := range []struct {
			r        *cronfx.Runner
			job, org string
		}{
			{c.runners[0], "other", "acme"}, {c.runners[0], "pending", ""}, {c.runners[0], "pending", "a\nb"},
			{c.runners[0], "pending", strings.Repeat("x", 510)}, {bare.runners[0], "pending", "acme"},
		} {
			got, err := b.r.TryEnqueueOrgJob(t.Context(), b.job, b.org)
			if got != cronfx.Failed || !errors.Is(err, semantic.ErrInvalidArgument) {
				t.Errorf("%q, %q: %s, %v, want FAILED and an invalid argument", b.job, b.org, got, err)
			}
		}
		if c.lock.Keys() != 0 {
			t.Error("a refused call took a lock")
		}
	})
}
