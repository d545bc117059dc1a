package testkit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// sqsQueue is one FIFO queue. Its SQS's mutex guards it.
type sqsQueue struct {
	url, arn   string
	attributes map[string]string

	stored   map[uint64]*sqsMessage
	groups   map[string][]*sqsMessage // stored messages by group, in order
	ready    []string                 // groups that may be received from, the longest waiting first
	isReady  map[string]bool          // those in ready
	inFlight map[uint64]*sqsMessage
	sequence uint64

	dedup      map[string]sqsFirst
	dedupOrder []string // keys of dedup, the oldest first

	attempts     map[string]*sqsAttempt // by ReceiveRequestAttemptId
	attemptOrder []string               // keys of attempts, the oldest first
	ghosts       []*sqsGhost
	wake         chan struct{} // closed when something became receivable
}

type sqsMessage struct {
	id, body, group, dedupID string
	attributes               map[string]types.MessageAttributeValue
	sequence                 uint64
	sent, firstReceived      time.Time
	receives                 int

	receipt    string    // of the latest receive
	receivedAt time.Time // the latest receive; the 12 h cap counts from here
	visibleAt  time.Time
}

// sqsFirst is what a duplicate is answered with.
type sqsFirst struct {
	messageID string
	sequence  uint64
	until     time.Time
}

// sqsAttempt remembers what a receive took, by sequence number: a deleted message is not
// kept for it.
type sqsAttempt struct {
	at    time.Time
	taken []sqsTaken
}

type sqsTaken struct {
	sequence uint64
	receives int // of the receive: a later one makes the attempt stale
}

// sqsGhost is a long poll that goes on although its caller gave up.
type sqsGhost struct {
	max        int
	visibility time.Duration
	until      time.Time
	attemptID  string
}

func newSQSQueue(url, arn string, attributes map[string]string) *sqsQueue {
	q := &sqsQueue{
		url: url, arn: arn, attributes: attributes,
		dedup: map[string]sqsFirst{}, attempts: map[string]*sqsAttempt{}, wake: make(chan struct{}),
	}
	q.purge()
	return q
}

func (q *sqsQueue) purge() {
	q.stored, q.inFlight = map[uint64]*sqsMessage{}, map[uint64]*sqsMessage{}
	q.groups, q.ready, q.isReady = map[string][]*sqsMessage{}, nil, map[string]bool{}
}

func (q *sqsQueue) seconds(attribute string) time.Duration {
	n, _ := strconv.Atoi(q.attributes[attribute])
	return time.Duration(n) * time.Second
}

func (q *sqsQueue) depth(now time.Time) (visible, inFlight int) {
	q.expire(now)
	return len(q.stored) - len(q.inFlight), len(q.inFlight)
}

// send stores m unless it is a duplicate, and returns what the sender is told.
func (q *sqsQueue) send(m *sqsMessage, now time.Time) sqsFirst {
	for len(q.dedupOrder) > 0 {
		oldest := q.dedupOrder[0]
		if now.Before(q.dedup[oldest].until) {
			break
		}
		delete(q.dedup, oldest)
		q.dedupOrder = q.dedupOrder[1:]
	}
	key := m.dedupID
	if q.attributes["DeduplicationScope"] == "messageGroup" {
		key = m.group + " " + m.dedupID // neither contains a space
	}
	if first, ok := q.dedup[key]; ok {
		return first
	}
	m.sent = now
	q.store(m)
	first := sqsFirst{m.id, m.sequence, now.Add(sqsDedupWindow)}
	q.dedup[key] = first
	q.dedupOrder = append(q.dedupOrder, key)
	return first
}

func (q *sqsQueue) store(m *sqsMessage) {
	q.sequence++
	m.sequence = q.sequence
	q.stored[m.sequence] = m
	q.groups[m.group] = append(q.groups[m.group], m)
	q.offer(m.group)
}

// offer makes a group receivable if it has messages and none in flight.
func (q *sqsQueue) offer(group string) {
	messages := q.groups[group]
	if len(messages) == 0 {
		delete(q.groups, group)
		return
	}
	for _, m := range messages {
		if _, hidden := q.inFlight[m.sequence]; hidden {
			return
		}
		if m.receives == 0 {
			break // what was never received is not in flight, nor is what follows
		}
	}
	if !q.isReady[group] {
		q.ready = append(q.ready, group)
		q.isReady[group] = true
	}
	close(q.wake)
	q.wake = make(chan struct{})
}

// expire makes messages receivable whose visibility timeout has passed.
func (q *sqsQueue) expire(now time.Time) {
	var groups []string
	for sequence, m := range q.inFlight {
		if !m.visibleAt.After(now) {
			delete(q.inFlight, sequence)
			groups = append(groups, m.group)
		}
	}
	slices.Sort(groups)
	for _, g := range groups {
		q.offer(g)
	}
}

// nextExpiry is when the next message in flight becomes receivable.
func (q *sqsQueue) nextExpiry() (at time.Time, ok bool) {
	for _, m := range q.inFlight {
		if !ok || m.visibleAt.Before(at) {
			at, ok = m.visibleAt, true
		}
	}
	return at, ok
}

// take hides up to n messages for visibility and returns them.
func (q *sqsQueue) take(s *SQS, n int, visibility time.Duration, now time.Time) []*sqsMessage {
	q.expire(now)
	dead, maxReceives := s.redrive(q)
	retention := q.seconds("MessageRetentionPeriod")
	var taken []*sqsMessage
	for len(q.ready) > 0 && len(taken) < n && len(q.inFlight) < sqsMaxInFlight {
		group := q.ready[0]
		q.ready = q.ready[1:]
		delete(q.isReady, group)
		for _, m := range slices.Clone(q.groups[group]) {
			if len(taken) == n || len(q.inFlight) == sqsMaxInFlight {
				break
			}
			if now.Sub(m.sent) >= retention {
				q.remove(m)
				continue
			}
			m.receives++
			if dead != nil && m.receives > maxReceives {
				q.remove(m)
				moved := *m
				moved.receipt = ""
				dead.store(&moved)
				continue
			}
			if m.firstReceived.IsZero() {
				m.firstReceived = now
			}
			m.receipt = fmt.Sprintf("receipt.%d.%d", m.sequence, m.receives)
			m.receivedAt, m.visibleAt = now, now.Add(visibility)
			q.inFlight[m.sequence] = m
			taken = append(taken, m)
		}
	}
	return taken
}

// remove forgets m without offering its group.
func (q *sqsQueue) remove(m *sqsMessage) {
	delete(q.stored, m.sequence)
	delete(q.inFlight, m.sequence)
	rest := slices.DeleteFunc(q.groups[m.group], func(x *sqsMessage) bool { return x == m })
	if len(rest) == 0 {
		delete(q.groups, m.group)
		return
	}
	q.groups[m.group] = rest
}

// remember lets the same attempt id return the same messages for five minutes.
func (q *sqsQueue) remember(attemptID string, taken []*sqsMessage, now time.Time) {
	for len(q.attemptOrder) > 0 {
		oldest := q.attemptOrder[0]
		if a := q.attempts[oldest]; a != nil && now.Sub(a.at) < sqsDedupWindow {
			break
		}
		delete(q.attempts, oldest)
		q.attemptOrder = q.attemptOrder[1:]
	}
	if attemptID == "" || len(taken) == 0 {
		return
	}
	a := &sqsAttempt{at: now}
	for _, m := range taken {
		a.taken = append(a.taken, sqsTaken{m.sequence, m.receives})
	}
	q.attempts[attemptID] = a
	q.attemptOrder = append(q.attemptOrder, attemptID)
}

// replay returns the messages of an earlier receive with this attempt id, hidden anew,
// if none of them was deleted, released or received again since.
func (q *sqsQueue) replay(attemptID string, visibility time.Duration, now time.Time) []*sqsMessage {
	a, ok := q.attempts[attemptID]
	if !ok || now.Sub(a.at) >= sqsDedupWindow {
		return nil
	}
	var again []*sqsMessage
	for _, t := range a.taken {
		m := q.inFlight[t.sequence]
		if m == nil || m.receives != t.receives {
			return nil
		}
		again = append(again, m)
	}
	for _, m := range again {
		m.receivedAt, m.visibleAt = now, now.Add(visibility)
	}
	return again
}

// haunt lets abandoned long polls take what they can.
func (q *sqsQueue) haunt(s *SQS, now time.Time) {
	for len(q.ghosts) > 0 {
		g := q.ghosts[0]
		if now.Before(g.until) {
			taken := q.take(s, g.max, g.visibility, now)
			if len(taken) == 0 {
				return
			}
			q.remember(g.attemptID, taken, now)
		}
		q.ghosts = q.ghosts[1:]
	}
}

// held finds the message in flight that a receipt is for. gone tells that the message
// was deleted, or expired from the queue.
func (q *sqsQueue) held(receipt string, now time.Time) (m *sqsMessage, gone bool, err error) {
	q.expire(now)
	parts := strings.Split(receipt, ".")
	if len(parts) != 3 || parts[0] != "receipt" {
		return nil, false, &types.ReceiptHandleIsInvalid{Message: aws.String("The input receipt handle is invalid.")}
	}
	sequence, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return nil, false, &types.ReceiptHandleIsInvalid{Message: aws.String("The input receipt handle is invalid.")}
	}
	m, ok := q.stored[sequence]
	if !ok {
		return nil, true, nil
	}
	if _, hidden := q.inFlight[sequence]; !hidden || m.receipt != receipt {
		return nil, false, nil
	}
	return m, false, nil
}

// wire is m as a receiver sees it.
func (m *sqsMessage) wire(system map[string]bool, names []string) types.Message {
	out := types.Message{
		MessageId: aws.String(m.id), ReceiptHandle: aws.String(m.receipt),
		Body: aws.String(m.body), MD5OfBody: aws.String(md5Hex(m.body)),
	}
	all := map[string]string{
		"SenderId": "000000000000", "SentTimestamp": millis(m.sent),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"ApproximateFirstReceiveTimestamp": millis(m.firstReceived),
		"MessageGroupId":                   m.group, "MessageDeduplicationId": m.dedupID,
		"SequenceNumber": fmt.Sprintf("%020d", m.sequence),
	}
	maps.DeleteFunc(all, func(name, _ string) bool { return !system[name] && !system["All"] })
	if len(all) > 0 {
		out.Attributes = all
	}
	wanted := map[string]types.MessageAttributeValue{}
	for name, value := range m.attributes {
		for _, asked := range names {
			prefix, isPrefix := strings.CutSuffix(asked, ".*")
			if asked == "All" || asked == name || (isPrefix && strings.HasPrefix(name, prefix)) {
				wanted[name] = value
			}
		}
	}
	if len(wanted) > 0 {
		out.MessageAttributes = wanted
	}
	return out
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
