package operationstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// node runs testdata/record.mjs, which knows the layout and nothing of this code.
func node[In, Out any](t *testing.T, work string, in []In) []Out {
	t.Helper()
	program := testkit.RequireProgram(t, "node", "apt-get install nodejs")
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var failure bytes.Buffer
	cmd := exec.Command(program, "testdata/record.mjs", work)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(raw), &failure
	raw, err = cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, failure.Bytes())
	}
	var out []Out
	if err := json.Unmarshal(raw, &out); err != nil || len(out) != len(in) {
		t.Fatalf("%d of %d, %v", len(out), len(in), err)
	}
	return out
}

// awkward is text that encoders of JSON write in different ways.
var awkward = []string{
	"plain", "<>&", "\u2028\u2029", `"quoted" \ back/slash`, "😀👩‍👩‍👧‍👦", "a\"\\<&>\u2028 é 😀", "\ufeffbom", "漢字", "\uffff", "\U0010ffff", `[","]`,
}

func awkwardIdentity(i int) operation.Identity {
	id := identity(awkward[i] + awkward[len(awkward)-1-i])
	id.Tenant, id.Operation = awkward[i], awkward[(i+3)%len(awkward)]
	return id
}

type nodeRecord struct {
	Namespace      string `json:"namespace"`
	Tenant         string `json:"tenant"`
	Operation      string `json:"operation"`
	IdempotencyKey string `json:"idempotencyKey"`
	referenceRecord
}

// A service in TypeScript began or completed an operation, this one goes on.
func TestRecordsThatNodeWroteAreRead(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr())
	now := time.Now()
	at := func(d time.Duration) string { return fmt.Sprint(now.Add(d).UnixMilli()) }
	states := []struct {
		state, lease, ref string
		status            operation.StatusOutcome
	}{
		{"pending", at(time.Minute), "", operation.StatusInProgress},
		{"pending", at(-time.Minute), "", operation.StatusRecoveryRequired},
		{"pending", "1", "", operation.StatusRecoveryRequired},
		{"completed", "0", "receipt/1:a%2F.b-c_d", operation.StatusCompleted},
	}
	var records []nodeRecord
	for i := range awkward {
		for j, s := range states {
			id := awkwardIdentity(i)
			id.IdempotencyKey += fmt.Sprint(j)
			records = append(records, nodeRecord{"coord", id.Tenant, id.Operation, id.IdempotencyKey, referenceRecord{
				1, id.Fingerprint, id.DurableID, string(operation.NewToken()), s.state, s.lease, at(time.Hour), s.ref,
			}})
		}
	}
	for n, written := range node[nodeRecord, struct{ Key, Raw string }](t, "encode", records) {
		r, s := records[n], states[n%len(states)]
		server.Must("SET", written.Key, written.Raw, "PX", time.Hour.Milliseconds())
		id := operation.Identity{Tenant: r.Tenant, Operation: r.Operation, IdempotencyKey: r.IdempotencyKey, Fingerprint: r.Fingerprint, DurableID: r.DurableID}
		if got := status(t, o, id, s.status); got.ResultRef != s.ref {
			t.Errorf("%+v: reference %q", r, got.ResultRef)
		}
		other := id
		other.DurableID = "another"
		begin(t, o, other, operation.BeginConflict)
		// The lease that it began under is its owner's here too, and the result is.
		l := operation.Lease{Identity: id, Token: operation.Token(r.Owner)}
		switch s.status {
		case operation.StatusInProgress:
			begin(t, o, id, operation.BeginInProgress)
			if got, err := o.Renew(t.Context(), l); err != nil || got.Outcome != operation.RenewRenewed {
				t.Errorf("renew: %+v, %v", got, err)
			}
			complete(t, o, l, "ref", operation.CompleteCompleted)
		case operation.StatusRecoveryRequired:
			complete(t, o, l, "ref", operation.CompleteLost)
			if l = begin(t, o, id, operation.BeginAcquired).Lease; !l.Takeover || l.Attempt != 2 {
				t.Errorf("took over from it as %+v", l)
			}
		case operation.StatusCompleted:
			complete(t, o, l, s.ref, operation.CompleteCompleted)
			complete(t, o, l, "other", operation.CompleteConflict)
		}
	}
}

// What this service writes in each state is what the layout says, under the key that Node
// computes.
func TestNodeReadsEveryRecordThatIsWritten(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr(), lease(time.Minute), retention(time.Hour))
	var keys []nodeRecord
	for i := range awkward {
		id := awkwardIdentity(i)
		keys = append(keys, nodeRecord{Namespace: "coord", Tenant: id.Tenant, Operation: id.Operation, IdempotencyKey: id.IdempotencyKey})
	}
	computed := node[nodeRecord, struct{ Key string }](t, "encode", keys)
	type written struct {
		what, state, ref string
		id               operation.Identity
		owner            operation.Token
	}
	var raws []string
	var wants []written
	for i := range awkward {
		id := awkwardIdentity(i)
		id.DurableID = strings.Repeat("d/%:._-A9", 14)
		note := func(what, state, ref string, owner operation.Token) {
			raw, _ := server.Must("GET", computed[i].Key).(string)
			raws, wants = append(raws, raw), append(wants, written{what, state, ref, id, owner})
		}
		l := begin(t, o, id, operation.BeginAcquired).Lease
		note("begun", "pending", "", l.Token)
		if _, err := o.Renew(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		note("renewed", "pending", "", l.Token)
		if _, err := o.Abandon(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		note("abandoned", "pending", "", l.Token)
		l = begin(t, o, id, operation.BeginAcquired).Lease
		note("taken over", "pending", "", l.Token)
		ref := strings.Repeat("r/%:._-A", 32)
		complete(t, o, l, ref, operation.CompleteCompleted)
		note("completed", "completed", ref, l.Token)
	}
	for i, read := range node[string, struct {
		Record  referenceRecord
		Refused string
	}](t, "decode", raws) {
		want, got := wants[i], read.Record
		if read.Refused != "" || got.State != want.state || got.ResultRef != want.ref || got.Owner != string(want.owner) ||
			got.Fingerprint != want.id.Fingerprint || got.DurableID != want.id.DurableID {
			t.Errorf("%s of %q: node reads %+v", want.what, want.id.Tenant, read)
		}
		if want.what == "abandoned" && got.LeaseUntilMs != "1" {
			t.Errorf("abandoned, and live until %s", got.LeaseUntilMs)
		}
	}
}
