package sqsfanout_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// Two replicas over a queue that loses, refuses and fails requests at random, handlers
// that fail and panic, and replicas that are restarted: every record has exactly one
// effect, in the order of its group, and nothing is left or dead.
func TestChaos_every_record_has_one_effect_in_order(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := newRigWith(t, 1000, nil)
			random := rand.New(rand.NewPCG(seed, 99))
			var mu sync.Mutex
			dice := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			const n, groups = 200, 12
			if report, err := r.producer().Enqueue(t.Context(), "d", many(n, groups)); err != nil || report.Enqueued != n {
				t.Fatal(report, err)
			}
			r.sqs.SetFault(func(call testkit.SQSCall) testkit.SQSFault {
				if call.Operation == "GetQueueAttributes" {
					return testkit.SQSFault{}
				}
				switch dice(24) {
				case 0, 1:
					return testkit.SQSFault{LoseReply: true}
				case 2, 3:
					return testkit.SQSFault{Refuse: true}
				case 4, 5:
					if n := len(call.EntryIDs); n > 0 {
						id := call.EntryIDs[dice(n)]
						return testkit.SQSFault{
							Fail: map[string]types.BatchResultErrorEntry{id: {Code: aws.String("InternalError")}},
							Omit: map[string]bool{call.EntryIDs[dice(n)]: true},
						}
					}
				}
				return testkit.SQSFault{}
			})
			effects, inGroup := map[string]int{}, map[string][]string{}
			handle := func(_ context.Context, rec semantic.FanoutRecord) error {
				switch dice(12) {
				case 0:
					return errBroken
				case 1:
					panic("chaos")
				case 2:
					return sqsfanout.RetryAfter(errBroken, 0)
				}
				mu.Lock()
				defer mu.Unlock()
				effects[rec.RecordID]++
				inGroup[rec.GroupID] = append(inGroup[rec.GroupID], rec.RecordID)
				return nil
			}
			c := consumer(handle)
			c.RetryDelay = func(int, error) time.Duration { return time.Second }
			hosts := []*sqsfanout.Host{r.start(c), r.start(c)}
			total := func() int { mu.Lock(); defer mu.Unlock(); return len(effects) }
			for i := range 4 {
				r.pass("work goes on", func() bool { return total() >= n*(i+1)/5 })
				if err := r.stop(hosts[i%2]); err != nil {
					t.Fatal(err)
				}
				if err := hosts[i%2].Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			r.pass("everything is done", func() bool { return total() == n && r.empty() })
			mu.Lock()
			defer mu.Unlock()
			for id, times := range effects {
				if times != 1 {
					t.Errorf("%s had %d effects", id, times)
				}
			}
			for g, ids := range inGroup {
				if !slices.IsSorted(ids) {
					t.Errorf("group %s was handled as %v", g, ids)
				}
			}
			if dead, _ := r.sqs.Depth(r.dead); dead != 0 {
				t.Errorf("%d messages are dead", dead)
			}
		})
	}
}
