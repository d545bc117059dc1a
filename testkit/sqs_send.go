package testkit

import (
	"context"
	"crypto/md5" // the service's integrity check, not a security measure
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// SendMessage stores one message.
func (s *SQS) SendMessage(ctx context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	return sqsCall(ctx, s, "SendMessage", aws.ToString(in.QueueUrl), nil, in, func(SQSFault) (*sqs.SendMessageOutput, error) {
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		first, err := s.send(q, types.SendMessageBatchRequestEntry{
			MessageBody: in.MessageBody, MessageAttributes: in.MessageAttributes, DelaySeconds: in.DelaySeconds,
			MessageGroupId: in.MessageGroupId, MessageDeduplicationId: in.MessageDeduplicationId,
		})
		if err != nil {
			return nil, err
		}
		return &sqs.SendMessageOutput{
			MessageId: &first.messageID, MD5OfMessageBody: aws.String(md5Hex(aws.ToString(in.MessageBody))),
			SequenceNumber: aws.String(fmt.Sprintf("%020d", first.sequence)),
		}, nil
	})
}

// SendMessageBatch stores up to ten messages in their order, each with an outcome of
// its own.
func (s *SQS) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	ids := entryIDs(in.Entries, func(e types.SendMessageBatchRequestEntry) *string { return e.Id })
	return sqsCall(ctx, s, "SendMessageBatch", aws.ToString(in.QueueUrl), ids, in, func(fault SQSFault) (*sqs.SendMessageBatchOutput, error) {
		q, err := s.queue(in.QueueUrl)
		if err != nil {
			return nil, err
		}
		if err := checkBatch(ids); err != nil {
			return nil, err
		}
		total := 0
		for _, e := range in.Entries {
			total += sqsSize(e)
		}
		if total > sqsMaxBytes {
			return nil, &types.BatchRequestTooLong{Message: aws.String("Batch requests cannot be longer than 1048576 bytes.")}
		}
		out := &sqs.SendMessageBatchOutput{}
		for _, e := range in.Entries {
			id := aws.ToString(e.Id)
			if failed, ok := fault.Fail[id]; ok {
				failed.Id = e.Id
				out.Failed = append(out.Failed, failed)
				continue
			}
			first, err := s.send(q, e)
			switch {
			case fault.Omit[id]:
			case err != nil:
				out.Failed = append(out.Failed, failedEntry(id, err))
			default:
				out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{
					Id: e.Id, MessageId: aws.String(first.messageID), MD5OfMessageBody: aws.String(md5Hex(aws.ToString(e.MessageBody))),
					SequenceNumber: aws.String(fmt.Sprintf("%020d", first.sequence)),
				})
			}
		}
		return out, nil
	})
}

// send checks one entry as the service does and stores it.
func (s *SQS) send(q *sqsQueue, e types.SendMessageBatchRequestEntry) (sqsFirst, error) {
	body := aws.ToString(e.MessageBody)
	most, _ := strconv.Atoi(q.attributes["MaximumMessageSize"])
	switch size := sqsSize(e); {
	case body == "":
		return sqsFirst{}, missingParameter("MessageBody")
	case !sqsText(body):
		return sqsFirst{}, &types.InvalidMessageContents{Message: aws.String("Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")}
	case size > most:
		return sqsFirst{}, invalidParameter("MessageBody", size, fmt.Sprintf("Message must be shorter than %d bytes", most))
	case e.DelaySeconds != 0:
		return sqsFirst{}, invalidParameter("DelaySeconds", e.DelaySeconds, "The request include parameter that is not valid for this queue type")
	case len(e.MessageAttributes) > 10:
		return sqsFirst{}, invalidParameter("MessageAttributes", len(e.MessageAttributes), "Number of message attributes exceeds the allowed maximum 10")
	}
	for name, value := range e.MessageAttributes {
		text := aws.ToString(value.StringValue)
		if name == "" || len(name) > 256 || aws.ToString(value.DataType) == "" || (value.BinaryValue == nil && (text == "" || !sqsText(text))) {
			return sqsFirst{}, invalidParameter("MessageAttributes", name, "it must have a type and a non-empty value of valid characters")
		}
	}
	group, dedupID := aws.ToString(e.MessageGroupId), aws.ToString(e.MessageDeduplicationId)
	switch {
	case group == "":
		return sqsFirst{}, missingParameter("MessageGroupId")
	case !sqsName(group):
		return sqsFirst{}, invalidParameter("MessageGroupId", group, "it can only include alphanumeric and punctuation characters, 1 to 128 in length")
	case dedupID == "" && q.attributes["ContentBasedDeduplication"] == "true":
		sum := sha256.Sum256([]byte(body))
		dedupID = hex.EncodeToString(sum[:])
	case dedupID == "":
		return sqsFirst{}, invalidParameter("MessageDeduplicationId", "", "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	case !sqsName(dedupID):
		return sqsFirst{}, invalidParameter("MessageDeduplicationId", dedupID, "it can only include alphanumeric and punctuation characters, 1 to 128 in length")
	}
	now := s.clock.Now()
	first := q.send(&sqsMessage{
		id: rand.Text(), body: body, group: group, dedupID: dedupID, attributes: maps.Clone(e.MessageAttributes),
	}, now)
	q.haunt(s, now)
	return first, nil
}

// sqsSize is what the service counts: the body, and each attribute's name, type and value.
func sqsSize(e types.SendMessageBatchRequestEntry) int {
	n := len(aws.ToString(e.MessageBody))
	for name, value := range e.MessageAttributes {
		n += len(name) + len(aws.ToString(value.DataType)) + len(aws.ToString(value.StringValue)) + len(value.BinaryValue)
	}
	return n
}

// sqsText tells whether every character may be in a message.
func sqsText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if (r < 0x20 && r != '\t' && r != '\n' && r != '\r') || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

// sqsName tells whether s may be a group or deduplication id.
func sqsName(s string) bool {
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 128
}

func entryIDs[E any](entries []E, id func(E) *string) []string {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = aws.ToString(id(e))
	}
	return ids
}

// checkBatch checks what makes the service refuse a whole batch.
func checkBatch(ids []string) error {
	if len(ids) == 0 {
		return &types.EmptyBatchRequest{Message: aws.String("The batch request doesn't contain any entries.")}
	}
	if len(ids) > sqsMaxBatch {
		return &types.TooManyEntriesInBatchRequest{Message: aws.String("Maximum number of entries per request are 10.")}
	}
	seen := map[string]bool{}
	for _, id := range ids {
		for i := range len(id) {
			c := id[i]
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return &types.InvalidBatchEntryId{Message: aws.String("A batch entry id can only contain alphanumeric characters, hyphens and underscores.")}
			}
		}
		if id == "" || len(id) > 80 {
			return &types.InvalidBatchEntryId{Message: aws.String("A batch entry id has 1 to 80 characters.")}
		}
		if seen[id] {
			return &types.BatchEntryIdsNotDistinct{Message: aws.String("Two or more batch entries in the request have the same Id.")}
		}
		seen[id] = true
	}
	return nil
}

// failedEntry is err as the result of one entry.
func failedEntry(id string, err error) types.BatchResultErrorEntry {
	code, message := "InternalError", err.Error()
	var api smithy.APIError
	if errors.As(err, &api) {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	return types.BatchResultErrorEntry{Id: &id, Code: &code, Message: &message, SenderFault: code != "InternalError"}
}

func md5Hex(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}
