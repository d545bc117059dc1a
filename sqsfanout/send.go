package sqsfanout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/semantic"
)

// sender sends batches of distinct groups.
type sender struct {
	config   Config
	api      API
	queueURL string
}

// resendWindow is how long the same deduplication id surely makes a second send
// harmless: the service's five minutes, less a margin.
const resendWindow = 4*time.Minute + 30*time.Second

var errUnaccounted = errors.New("the reply does not mention the entry")

// send gives every entry of the batch an outcome and returns the number of requests. A
// request's failed entries are sent again with the same ids, and only those that failed
// for a reason that may pass. A nil error of the SDK is not success: entries are
// accounted for by their ids.
func (s sender) send(ctx context.Context, batch []*entry) (calls int64) {
	started := s.config.Clock.Now()
	for attempt := 1; ; attempt++ {
		calls++
		left := s.try(ctx, batch)
		if len(left) > 1 && left[0].code == "BatchRequestTooLong" {
			// The service counts otherwise than we do: halve and go on.
			half := len(left) / 2
			return calls + s.send(ctx, left[:half]) + s.send(ctx, left[half:])
		}
		if len(left) == 0 || left[0].code == "BatchRequestTooLong" || attempt == s.config.Attempts || s.config.Clock.Now().Sub(started) > resendWindow {
			return calls
		}
		if !sleep(ctx, s.config.Clock, backoff(attempt)) {
			return calls
		}
		batch = left
	}
}

// backoff is how long to wait after the attempt: 100 ms, doubled each time up to 5 s,
// a random half of it taken off.
func backoff(attempt int) time.Duration {
	d := min(100*time.Millisecond<<min(attempt-1, 10), 5*time.Second)
	return d/2 + rand.N(d/2)
}

// try makes one request and returns the entries that are worth another.
func (s sender) try(ctx context.Context, batch []*entry) (again []*entry) {
	in := &sqs.SendMessageBatchInput{QueueUrl: &s.queueURL, Entries: make([]types.SendMessageBatchRequestEntry, len(batch))}
	for i, e := range batch {
		in.Entries[i] = e.message
		in.Entries[i].Id = aws.String(strconv.Itoa(i))
	}
	if ctx.Err() != nil {
		for _, e := range batch {
			e.fail(verdict{code: CodeCancelled, outcome: semantic.OutcomeUnavailable}, ended(ctx))
		}
		return nil
	}
	call, cancel := context.WithTimeout(ctx, s.config.CallTimeout)
	defer cancel()
	out, err := s.api.SendMessageBatch(call, in, tryOnce)
	if err != nil {
		v := judge(err)
		for _, e := range batch {
			e.fail(v, err)
		}
		if v.again || v.code == "BatchRequestTooLong" {
			return batch
		}
		return nil
	}

	accepted, refused := map[string]bool{}, map[string]types.BatchResultErrorEntry{}
	for _, r := range out.Successful {
		accepted[aws.ToString(r.Id)] = true
	}
	for _, r := range out.Failed {
		refused[aws.ToString(r.Id)] = r
	}
	for i, e := range batch {
		id := strconv.Itoa(i)
		r, failed := refused[id]
		switch {
		case accepted[id]:
			e.queued, e.code, e.err = true, "", nil
		case !failed:
			e.fail(verdict{code: CodeUnknown, outcome: semantic.OutcomeUnknown}, errUnaccounted)
			again = append(again, e)
		default:
			e.fail(verdict{code: bareCode(aws.ToString(r.Code)), outcome: semantic.OutcomeUnavailable},
				fmt.Errorf("queue refused the record: %s: %s", aws.ToString(r.Code), aws.ToString(r.Message)))
			if !r.SenderFault {
				again = append(again, e)
			}
		}
	}
	return again
}

// fail keeps why the latest send did not work. Once a send was not answered, no later
// refusal proves that the record is not queued.
func (e *entry) fail(v verdict, cause error) {
	e.uncertain = e.uncertain || v.outcome == semantic.OutcomeUnknown
	e.code = v.code
	if e.uncertain {
		v.outcome, e.code = semantic.OutcomeUnknown, CodeUnknown
	}
	e.err = &semantic.OutcomeError{Operation: "fanout.enqueue", Key: e.recordID, Outcome: v.outcome, Cause: cause}
}
