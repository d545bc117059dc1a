package sqsfanout

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/observability"
)

// line is the reception of one queue.
type line struct {
	*run
	api        API // which measures the queue's requests
	queue      observability.Queue
	queueURL   string
	name       string              // of the consumers, for signals of no one of them
	consumers  map[string]Consumer // by domain
	workers    int
	visibility time.Duration // at receipt: the longest of the consumers'
	// maxReceives is after how many receives the queue gives a message up; 0: never.
	maxReceives int

	gate   sync.Mutex
	busy   int               // workers
	groups map[string]*group // whose messages go to which worker
	freed  chan struct{}     // has one value after a worker ended
}

// group is the messages of one message group in hand, in order, behind the one that its
// worker handles.
type group struct {
	id      string
	waiting []*delivery
}

func newLine(r *run, queueURL string, info queueInfo, consumers []Consumer) *line {
	api := measured(r.api, r.config.Telemetry, queueURL)
	l := &line{
		run: r, api: api, queue: api.queue, queueURL: queueURL, maxReceives: info.maxReceives, consumers: map[string]Consumer{},
		groups: map[string]*group{}, freed: make(chan struct{}, 1),
	}
	names := make([]string, len(consumers))
	for i, c := range consumers {
		names[i] = c.Name
		l.consumers[c.Domain] = c
		l.workers += c.Concurrency
		l.visibility = max(l.visibility, c.Visibility)
	}
	l.name = strings.Join(names, ",")
	return l
}

// poll receives until the run stops.
func (l *line) poll() {
	for failures := 0; ; {
		most := l.waitForWorker()
		if most == 0 {
			return
		}
		// A receive whose reply was lost may have hidden messages; the same attempt id
		// brings them back, for as long as their visibility can still be trusted.
		attemptID, first := rand.Text(), l.config.Clock.Now()
		for {
			out, err := l.receive(l.polls, most, attemptID, l.config.PollWait)
			if err == nil {
				failures = 0
				l.accept(out.Messages, first)
				break
			}
			if l.isStopping() {
				l.recover(most, attemptID, first)
				return
			}
			failures++
			l.signals.ConsumerReceiveFailed(l.queueURL, err)
			if !sleep(l.handlers, l.config.Clock, backoff(failures)) {
				l.recover(most, attemptID, first)
				return
			}
			if l.config.Clock.Now().Sub(first) > min(l.visibility/2, resendWindow) {
				break
			}
		}
	}
}

// recover releases what an interrupted receive may have hidden.
func (l *line) recover(most int, attemptID string, first time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.polls), lastMoment)
	defer cancel()
	if out, err := l.receive(ctx, most, attemptID, time.Second); err == nil {
		l.accept(out.Messages, first)
	}
}

// waitForWorker returns how many messages may be received now, 0 if the run stops.
func (l *line) waitForWorker() int {
	for {
		if l.isStopping() {
			return 0
		}
		l.gate.Lock()
		free := l.workers - l.busy
		l.gate.Unlock()
		if free > 0 {
			return min(free, maxBatch)
		}
		select {
		case <-l.stopping:
		case <-l.freed:
		}
	}
}

func (l *line) receive(ctx context.Context, most int, attemptID string, wait time.Duration) (*sqs.ReceiveMessageOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+l.config.CallTimeout)
	defer cancel()
	return l.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &l.queueURL, MaxNumberOfMessages: int32(most),
		WaitTimeSeconds: int32(wait / time.Second), VisibilityTimeout: int32(l.visibility / time.Second),
		ReceiveRequestAttemptId: &attemptID, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{
			types.MessageSystemAttributeNameMessageGroupId, types.MessageSystemAttributeNameApproximateReceiveCount,
		},
	}, tryOnce)
}

// accept takes messages in hand that were hidden at since or later: their visibility is
// kept from here on, and each joins its group. While the run stops they are released.
func (l *line) accept(messages []types.Message, since time.Time) {
	deliveries := make([]*delivery, len(messages))
	for i, m := range messages {
		deliveries[i] = newDelivery(l, m, since)
	}
	l.gate.Lock()
	if l.isStopping() {
		l.gate.Unlock()
		l.release(deliveries)
		return
	}
	defer l.gate.Unlock()
	for _, d := range deliveries {
		d.keeper.start()
		if g, ok := l.groups[d.group]; ok {
			g.waiting = append(g.waiting, d)
			continue
		}
		g := &group{id: d.group, waiting: []*delivery{d}}
		l.groups[d.group] = g
		l.busy++
		l.work.Go(func() { l.serve(g) })
	}
}

// serve handles the messages of one group one after the other until none is in hand.
func (l *line) serve(g *group) {
	for {
		l.gate.Lock()
		if len(g.waiting) == 0 {
			if l.groups[g.id] == g {
				delete(l.groups, g.id)
			}
			l.busy--
			l.gate.Unlock()
			select {
			case l.freed <- struct{}{}:
			default:
			}
			return
		}
		d := g.waiting[0]
		g.waiting = g.waiting[1:]
		l.gate.Unlock()

		if l.handle(g, d) {
			continue
		}
		// The group stops here: what follows must not overtake, and is released so
		// that nobody has to wait for its visibility timeout.
		l.gate.Lock()
		rest := g.waiting
		g.waiting = nil
		l.gate.Unlock()
		l.release(rest)
	}
}

// forfeit takes the group from a worker whose message was lost: another replica, or
// another worker of this one, may be handed that message while the handler still
// returns, and must not wait behind it.
func (l *line) forfeit(g *group) {
	l.gate.Lock()
	defer l.gate.Unlock()
	if l.groups[g.id] == g {
		delete(l.groups, g.id)
	}
	rest := g.waiting
	g.waiting = nil
	l.work.Go(func() { l.release(rest) })
}

// releaseAtStop waits for the stop and releases what waits behind running handlers,
// however long those take.
func (l *line) releaseAtStop() {
	<-l.stopping
	var rest []*delivery
	l.gate.Lock()
	for _, g := range l.groups {
		rest = append(rest, g.waiting...)
		g.waiting = nil
	}
	l.gate.Unlock()
	l.release(rest)
}

// delivery is one message in hand.
type delivery struct {
	message  types.Message
	group    string
	receives int
	keeper   *keeper
}

func newDelivery(l *line, m types.Message, since time.Time) *delivery {
	d := &delivery{message: m, group: m.Attributes["MessageGroupId"]}
	d.receives, _ = strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
	d.keeper = newKeeper(l, aws.ToString(m.ReceiptHandle), since)
	return d
}

func (d *delivery) id() string { return aws.ToString(d.message.MessageId) }
