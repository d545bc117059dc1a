package sqsfanout_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/sqsfanout"
	"github.com/wrkbelt/coord/testkit"
)

// The ids are part of the wire format: replicas of two releases must agree on them.
// Computed independently: SHA-256 over each part preceded by its length in 8 bytes.
func TestIDs_never_change(t *testing.T) {
	r := semantic.FanoutRecord{OrganizationID: "acme", RecordID: "42", Version: "7", GroupID: "tenant-1"}
	for _, c := range []struct{ name, got, want string }{
		{"deduplication id", sqsfanout.DeduplicationID("media", r), "f885bc0e5042c90be0a116739ebaf7cbf7dcc4330a67fb117de29ce707407ce0"},
		{"group id", sqsfanout.MessageGroupID("media", r), "20353ba1a6effec9e25758397e7e20dd8b15934fdaeb48a48c5082b6543f2afa"},
		{"group id of its own", sqsfanout.MessageGroupID("media", semantic.FanoutRecord{OrganizationID: "acme", RecordID: "42"}), "e9ebf62f38f73dfb243bbd74d0eb2100c6da2a585d3a82cad131e3b85823c0cf"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %s, want %s", c.name, c.got, c.want)
		}
	}
}

func TestIDs_differ_with_every_part(t *testing.T) {
	base := semantic.FanoutRecord{OrganizationID: "o", RecordID: "r", Version: "v"}
	seen := map[string]string{sqsfanout.DeduplicationID("d", base): "base"}
	for name, c := range map[string]struct {
		domain string
		r      semantic.FanoutRecord
	}{
		"domain":  {"e", base},
		"org":     {"d", semantic.FanoutRecord{OrganizationID: "p", RecordID: "r", Version: "v"}},
		"record":  {"d", semantic.FanoutRecord{OrganizationID: "o", RecordID: "s", Version: "v"}},
		"version": {"d", semantic.FanoutRecord{OrganizationID: "o", RecordID: "r", Version: "w"}},
		"shift":   {"d", semantic.FanoutRecord{OrganizationID: "or", RecordID: "", Version: "v"}},
		"shift2":  {"do", semantic.FanoutRecord{OrganizationID: "", RecordID: "r", Version: "v"}},
	} {
		id := sqsfanout.DeduplicationID(c.domain, c.r)
		if other, ok := seen[id]; ok {
			t.Errorf("%s has the id of %s", name, other)
		}
		seen[id] = name
	}
}

func TestDecode_refuses_what_no_producer_of_this_release_sent(t *testing.T) {
	text := func(v string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
	}
	good := func() types.Message {
		return types.Message{Body: aws.String("b"), MessageAttributes: map[string]types.MessageAttributeValue{
			"coord.layout": text("1"), "coord.domain": text("d"), "coord.organization_id": text("o"), "coord.record_id": text("r"),
		}}
	}
	if domain, r, err := sqsfanout.Decode(good()); err != nil || domain != "d" || r.RecordID != "r" || string(r.Body) != "b" {
		t.Fatalf("good message: %q %+v %v", domain, r, err)
	}
	for name, spoil := range map[string]func(m types.Message){
		"no layout":       func(m types.Message) { delete(m.MessageAttributes, "coord.layout") },
		"a newer layout":  func(m types.Message) { m.MessageAttributes["coord.layout"] = text("2") },
		"no domain":       func(m types.Message) { delete(m.MessageAttributes, "coord.domain") },
		"no organization": func(m types.Message) { delete(m.MessageAttributes, "coord.organization_id") },
		"no record":       func(m types.Message) { delete(m.MessageAttributes, "coord.record_id") },
		"a binary record": func(m types.Message) {
			m.MessageAttributes["coord.record_id"] = types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: []byte("r")}
		},
	} {
		m := good()
		spoil(m)
		if _, _, err := sqsfanout.Decode(m); !errors.Is(err, semantic.ErrCorrupt) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// Whatever a record holds, it is either refused as invalid or arrives as it was.
func FuzzRecord(f *testing.F) {
	f.Add("org", "record", "1", "group", []byte("body"))
	f.Add("ö", "😀", "", "", []byte{})
	f.Add("a", "b", "\ufffe", "g", []byte("\uffff"))
	f.Add("a", "b", "c", "d", []byte{0xff, 0xfe})
	f.Add("a", "b\u0085", "c", "d", []byte("\ufffd\r\n\t"))
	f.Add(strings.Repeat("x", 513), "b", "c", "d", []byte("-"))
	f.Fuzz(func(t *testing.T, org, id, version, group string, body []byte) {
		fake := testkit.NewSQS(nil)
		url, _ := testkit.CreateFIFO(t, fake, "q", 3, nil)
		p, err := sqsfanout.NewProducer(sqsfanout.Config{QueueURL: url, API: fake, Attempts: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := semantic.FanoutRecord{OrganizationID: org, RecordID: id, Version: version, GroupID: group, Body: body}
		report, err := p.Enqueue(t.Context(), "d", stream(in))
		if err != nil || report.Scanned != 1 {
			t.Fatalf("report %+v, %v", report, err)
		}
		if report.Failed == 1 {
			if code := report.Failures[0].Code; code != sqsfanout.CodeInvalid {
				t.Errorf("failed with %s: %v", code, report.Failures[0].Err)
			}
			return
		}
		out, err := fake.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &url, MessageAttributeNames: []string{"All"}})
		if err != nil || len(out.Messages) != 1 {
			t.Fatalf("receive: %v", err)
		}
		_, got, err := sqsfanout.Decode(out.Messages[0])
		if err != nil || got.OrganizationID != org || got.RecordID != id || got.Version != version || got.GroupID != group || string(got.Body) != string(body) {
			t.Errorf("got %+v, %v; want %+v", got, err, in)
		}
		if !utf8.Valid(body) {
			t.Errorf("invalid UTF-8 was sent")
		}
	})
}
