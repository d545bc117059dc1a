package sqsfanout

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/semantic"
)

// A message is laid out so that any SQS tool can read it: the body is the record's, and
// its identity is in string attributes. The layout has a version, so that a consumer
// leaves what it does not understand to the dead-letter queue.
const (
	attrLayout       = "coord.layout"
	attrDomain       = "coord.domain"
	attrOrganization = "coord.organization_id"
	attrRecord       = "coord.record_id"
	attrVersion      = "coord.version" // absent when empty
	attrGroup        = "coord.group"   // absent when empty
	attrEmpty        = "coord.empty"   // present when the record's body is empty, which SQS does not allow

	layout        = "1"
	emptyBody     = "-"
	attrDataType  = "String"
	maxBatchBytes = 1 << 20
	maxBatch      = 10
)

// DeduplicationID is the MessageDeduplicationId of a record: 64 hexadecimal digits of a
// SHA-256 over domain, organisation, record and version, each preceded by its length. A
// record that is to be handled again needs a new version: SQS drops a repeated id for
// five minutes, also after the first message was handled or went to the dead-letter queue.
func DeduplicationID(domain string, r semantic.FanoutRecord) string {
	return digest("coord.dedup.v1", domain, r.OrganizationID, r.RecordID, r.Version)
}

// MessageGroupID is the MessageGroupId of a record: 64 hexadecimal digits of a SHA-256
// over the domain and the record's group, or its organisation and record where it has
// none. Groups of different domains never block each other.
func MessageGroupID(domain string, r semantic.FanoutRecord) string {
	if r.GroupID != "" {
		return digest("coord.group.v1", domain, r.GroupID)
	}
	return digest("coord.own_group.v1", domain, r.OrganizationID, r.RecordID)
}

// digest hashes parts so that no two lists of parts have the same input.
func digest(parts ...string) string {
	h := sha256.New()
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// encode turns a record into a batch entry and its size as the service counts it, or
// refuses it with an [*semantic.ArgumentError] or [semantic.ErrTooLarge].
func encode(domain string, r semantic.FanoutRecord, maxBytes int) (types.SendMessageBatchRequestEntry, int, error) {
	const op = "fanout.enqueue"
	var none types.SendMessageBatchRequestEntry
	attributes := make(map[string]types.MessageAttributeValue, 7)
	size := 0
	set := func(name, value string) {
		attributes[name] = types.MessageAttributeValue{DataType: aws.String(attrDataType), StringValue: aws.String(value)}
		size += len(name) + len(attrDataType) + len(value)
	}
	set(attrLayout, layout)
	set(attrDomain, domain)
	for _, f := range []struct {
		argument, attribute, value string
		optional                   bool
	}{
		{"OrganizationID", attrOrganization, r.OrganizationID, false},
		{"RecordID", attrRecord, r.RecordID, false},
		{"Version", attrVersion, r.Version, true},
		{"GroupID", attrGroup, r.GroupID, true},
	} {
		if f.value == "" && f.optional {
			continue
		}
		if err := validateName(op, f.argument, f.value); err != nil {
			return none, 0, err
		}
		set(f.attribute, f.value)
	}
	body := string(r.Body)
	if body == "" {
		body = emptyBody
		set(attrEmpty, "1")
	}
	if bad, ok := forbidden(body); ok {
		return none, 0, &semantic.ArgumentError{
			Operation: op, Argument: "Body", Value: bad,
			Allowed: "valid UTF-8 of tab, line feed, carriage return and U+0020 up, without U+FFFE and U+FFFF",
		}
	}
	size += len(body)
	if size > maxBytes {
		return none, 0, fmt.Errorf("%s: record of %d bytes with its attributes, the queue takes %d: %w", op, size, maxBytes, semantic.ErrTooLarge)
	}
	return types.SendMessageBatchRequestEntry{
		MessageBody: &body, MessageAttributes: attributes,
		MessageGroupId: aws.String(MessageGroupID(domain, r)), MessageDeduplicationId: aws.String(DeduplicationID(domain, r)),
	}, size, nil
}

// validateName is semantic.ValidateName without the two non-characters that SQS refuses.
func validateName(op, argument, value string) error {
	if err := semantic.ValidateName(op, argument, value); err != nil {
		return err
	}
	if bad, ok := forbidden(value); ok {
		return &semantic.ArgumentError{Operation: op, Argument: argument, Value: bad, Allowed: "no non-characters"}
	}
	return nil
}

// forbidden finds the first character that SQS does not take in a message.
func forbidden(s string) (found string, ok bool) {
	for i, r := range s {
		switch {
		case r == utf8.RuneError && len(s[i:]) > 0:
			if _, width := utf8.DecodeRuneInString(s[i:]); width <= 1 {
				return fmt.Sprintf("invalid UTF-8 at byte %d", i), true
			}
		case (r < 0x20 && r != '\t' && r != '\n' && r != '\r') || r == 0xFFFE || r == 0xFFFF:
			return fmt.Sprintf("%U at byte %d", r, i), true
		}
	}
	return "", false
}

// Decode reads a message back that a [Producer] sent: for tools that look into a
// dead-letter queue, and for handlers outside a [Host]. The message must have been
// received with all of its attributes. The error matches [semantic.ErrCorrupt].
func Decode(m types.Message) (domain string, r semantic.FanoutRecord, err error) {
	get := func(name string) string { return aws.ToString(m.MessageAttributes[name].StringValue) }
	if got := get(attrLayout); got != layout {
		return "", r, fmt.Errorf("message has layout %q, this release reads %q: %w", got, layout, semantic.ErrCorrupt)
	}
	r = semantic.FanoutRecord{
		OrganizationID: get(attrOrganization), RecordID: get(attrRecord),
		Version: get(attrVersion), GroupID: get(attrGroup), Body: []byte(aws.ToString(m.Body)),
	}
	domain = get(attrDomain)
	for _, f := range []struct{ name, value string }{
		{attrDomain, domain}, {attrOrganization, r.OrganizationID}, {attrRecord, r.RecordID},
	} {
		if semantic.ValidateName("message", f.name, f.value) != nil {
			return "", semantic.FanoutRecord{}, fmt.Errorf("message attribute %s is missing or malformed: %w", f.name, semantic.ErrCorrupt)
		}
	}
	if get(attrEmpty) != "" {
		r.Body = []byte{}
	}
	return domain, r, nil
}
