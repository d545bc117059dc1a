package testkit

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// SQSCall is one request to an [SQS], as a fault hook sees it.
type SQSCall struct {
	Operation string   // for example "SendMessageBatch"
	QueueURL  string   // empty for CreateQueue and GetQueueUrl
	EntryIDs  []string // of a batch
	Input     any      // the SDK's input, not to be changed
}

// SQSFault is what goes wrong with one request. The zero value is nothing.
type SQSFault struct {
	// Err is returned and nothing is applied.
	Err error
	// Refuse: the connection is refused; nothing is applied.
	Refuse bool
	// Hang: neither applied nor answered until the caller's context ends.
	Hang bool
	// LoseReply: applied, and the connection is reset before the reply.
	LoseReply bool
	// LoseReplyHang: applied, and no reply comes until the caller's context ends.
	LoseReplyHang bool
	// Fail fails these entries of a batch, which are not applied.
	Fail map[string]types.BatchResultErrorEntry
	// Omit leaves these entries of a batch out of the reply, though applied.
	Omit map[string]bool
	// Reply returns this instead of the real output, once applied; it must be of the
	// operation's output type.
	Reply any
}

// SetFault makes hook decide what goes wrong with each request from now on; nil is
// nothing. hook is called for one request at a time, and may call the fake's methods
// other than SetFault and the requests themselves.
func (s *SQS) SetFault(hook func(SQSCall) SQSFault) {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	s.fault = hook
}

// SetCancelHides chooses what becomes of a long poll whose caller gave up: with true
// the server goes on with it, as the real one may, and hides the messages that it then
// finds, although nobody will ever see the reply.
func (s *SQS) SetCancelHides(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelHides = on
}

// Calls returns how often the operation was requested, failed requests included.
func (s *SQS) Calls(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[operation]
}

var (
	errSQSRefused   = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	errSQSReset     = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	errSQSBadOutput = errors.New("testkit: SQSFault.Reply is not of the operation's output type")
)

// sqsCall runs one request: the fault hook, apply under the mutex, and the reply.
// Errors are wrapped as the SDK's client wraps them.
func sqsCall[Out any](ctx context.Context, s *SQS, operation, queueURL string, entryIDs []string, in any, apply func(SQSFault) (*Out, error)) (*Out, error) {
	out, err := func() (*Out, error) {
		fault, err := s.begin(ctx, SQSCall{operation, queueURL, entryIDs, in})
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		out, err := apply(fault)
		s.mu.Unlock()
		return sqsReply(ctx, fault, out, err)
	}()
	if err != nil {
		return nil, &smithy.OperationError{ServiceID: "SQS", OperationName: operation, Err: err}
	}
	return out, nil
}

// begin counts a request and decides what goes wrong with it.
func (s *SQS) begin(ctx context.Context, call SQSCall) (SQSFault, error) {
	s.mu.Lock()
	s.calls[call.Operation]++
	s.mu.Unlock()
	fault := s.decide(call)
	switch {
	case ctx.Err() != nil:
		return fault, ctx.Err()
	case fault.Refuse:
		return fault, errSQSRefused
	case fault.Hang:
		<-ctx.Done()
		return fault, ctx.Err()
	}
	return fault, fault.Err
}

// decide asks the hook, with a lock of its own: a test that holds something the hook
// waits for can still call the fake.
func (s *SQS) decide(call SQSCall) SQSFault {
	s.faultMu.Lock()
	defer s.faultMu.Unlock()
	if s.fault == nil {
		return SQSFault{}
	}
	return s.fault(call)
}

func sqsReply[Out any](ctx context.Context, fault SQSFault, out *Out, err error) (*Out, error) {
	switch {
	case fault.LoseReply:
		return nil, errSQSReset
	case fault.LoseReplyHang:
		<-ctx.Done()
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	case fault.Reply != nil:
		replaced, ok := fault.Reply.(*Out)
		if !ok {
			return nil, errSQSBadOutput
		}
		return replaced, nil
	}
	return out, nil
}
