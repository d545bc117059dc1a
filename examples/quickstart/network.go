package main

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/wrkbelt/coord/sqsfanout"
)

var errCut = errors.New("replica was killed")

// network is what connects one replica to its servers. Cutting it is as near as one
// process comes to killing one of its replicas: nothing that was in flight arrives, and
// nobody is told.
type network struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func (n *network) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	for c := range n.conns {
		_ = c.Close()
	}
}

func (n *network) dead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

// dial is the replica's Redis dialer.
func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if n.dead() {
		return nil, errCut
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		_ = c.Close()
		return nil, errCut
	}
	n.conns[c] = struct{}{}
	return c, nil
}

// queue is the replica's way to SQS. It counts the records that the queue has accepted.
type queue struct {
	sqsfanout.API
	net      *network
	accepted *idSet
}

// idSet is a set of deduplication ids.
type idSet struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (s *idSet) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[id] = struct{}{}
}

func (s *idSet) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

func (q *queue) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, o ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	if q.net.dead() {
		return nil, errCut
	}
	out, err := q.API.SendMessageBatch(ctx, in, o...)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, e := range in.Entries {
		ids[*e.Id] = *e.MessageDeduplicationId
	}
	for _, e := range out.Successful {
		q.accepted.add(ids[*e.Id])
	}
	if q.net.dead() {
		return nil, errCut
	}
	return out, nil
}

func (q *queue) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, o ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	return through(ctx, q.net, in, o, q.API.ReceiveMessage)
}

func (q *queue) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, o ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	return through(ctx, q.net, in, o, q.API.DeleteMessage)
}

func (q *queue) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, o ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	return through(ctx, q.net, in, o, q.API.ChangeMessageVisibility)
}

func (q *queue) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, o ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	return through(ctx, q.net, in, o, q.API.ChangeMessageVisibilityBatch)
}

// through makes a call unless the network is cut, before or while it is under way.
func through[I, O any](ctx context.Context, n *network, in I, o []func(*sqs.Options), call func(context.Context, I, ...func(*sqs.Options)) (O, error)) (O, error) {
	var none O
	if n.dead() {
		return none, errCut
	}
	out, err := call(ctx, in, o...)
	if n.dead() {
		return none, errCut
	}
	return out, err
}
