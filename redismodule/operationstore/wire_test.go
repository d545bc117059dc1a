package operationstore

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// referenceRecord is a record as the reference checks it before it believes it: exactly
// eight fields, times as canonical decimal strings, at most 2048 bytes.
type referenceRecord struct {
	Schema        int    `json:"schema"`
	Fingerprint   string `json:"fingerprint"`
	DurableID     string `json:"durableId"`
	Owner         string `json:"owner"`
	State         string `json:"state"`
	LeaseUntilMs  string `json:"leaseUntilMs"`
	RetainUntilMs string `json:"retainUntilMs"`
	ResultRef     string `json:"resultRef"`
}

var (
	hexForm       = regexp.MustCompile(`^[0-9a-f]{64}$`)
	referenceForm = regexp.MustCompile(`^[A-Za-z0-9_:/%.-]+$`)
	timeForm      = regexp.MustCompile(`^(0|[1-9][0-9]{0,15})$`)
)

func readAsReference(t *testing.T, server *testkit.RedisServer, id operation.Identity) (referenceRecord, time.Duration) {
	t.Helper()
	key := operation.RecordKey("coord", id)
	raw, ok := server.Must("GET", key).(string)
	if !ok || len(raw) > 2048 {
		t.Fatalf("record %q", raw)
	}
	var fields map[string]json.RawMessage
	var r referenceRecord
	if err := json.Unmarshal([]byte(raw), &fields); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		t.Fatal(err)
	}
	until, err := strconv.ParseInt(r.LeaseUntilMs, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := strconv.ParseInt(r.RetainUntilMs, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	sound := len(fields) == 8 && r.Schema == 1 && hexForm.MatchString(r.Fingerprint) && hexForm.MatchString(r.Owner) &&
		referenceForm.MatchString(r.DurableID) && len(r.DurableID) <= 128 &&
		timeForm.MatchString(r.LeaseUntilMs) && timeForm.MatchString(r.RetainUntilMs) && kept > 0
	switch r.State {
	case "pending":
		sound = sound && until > 0 && kept >= until && r.ResultRef == ""
	case "completed":
		sound = sound && until == 0 && referenceForm.MatchString(r.ResultRef) && len(r.ResultRef) <= 256
	default:
		sound = false
	}
	if !sound {
		t.Fatalf("the reference would not believe %s", raw)
	}
	ttl := time.Duration(server.Must("PTTL", key).(int64)) * time.Millisecond
	return r, ttl
}

func TestEveryRecordIsOneTheReferenceReads(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr(), lease(time.Minute), retention(time.Hour))
	id := identity("wire")
	id.DurableID = strings.Repeat("d/%:._-A9", 14)
	check := func(state string, owner operation.Token) {
		t.Helper()
		r, ttl := readAsReference(t, server, id)
		if r.State != state || r.Owner != string(owner) || r.Fingerprint != id.Fingerprint || r.DurableID != id.DurableID {
			t.Fatalf("record %+v", r)
		}
		if ttl <= 59*time.Minute || ttl > time.Hour {
			t.Fatalf("the record lives for %v", ttl)
		}
	}
	l := begin(t, o, id, operation.BeginAcquired).Lease
	check("pending", l.Token)
	if _, err := o.Renew(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	check("pending", l.Token)
	if _, err := o.Abandon(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	check("pending", l.Token)
	l = begin(t, o, id, operation.BeginAcquired).Lease
	check("pending", l.Token)
	complete(t, o, l, strings.Repeat("r/%:._-A", 32), operation.CompleteCompleted)
	check("completed", l.Token)
}

// putReference stores a record as the reference does: through cjson, which orders the
// fields as it likes and writes / as \/.
func putReference(t *testing.T, server *testkit.RedisServer, id operation.Identity, owner operation.Token, state string, lease time.Duration, ref string) {
	t.Helper()
	const script = `local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000)
local s = function(n) return string.format('%.0f', n) end
local r = {schema=1, fingerprint=ARGV[1], durableId=ARGV[2], owner=ARGV[3], state=ARGV[4],
leaseUntilMs=ARGV[4] == 'pending' and s(now + ARGV[5]) or '0', retainUntilMs=s(now + 3600000), resultRef=ARGV[6]}
redis.call('SET', KEYS[1], cjson.encode(r), 'PX', 3600000) return cjson.encode(r)`
	server.Must("EVAL", script, 1, operation.RecordKey("coord", id), id.Fingerprint, id.DurableID, string(owner), state, lease.Milliseconds(), ref)
}

func TestRecordsOfTheReferenceAreRead(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr())
	live, expired, done := identity("ref-live"), identity("ref-expired"), identity("ref-done")
	owner := operation.NewToken()
	putReference(t, server, live, owner, "pending", time.Minute, "")
	putReference(t, server, expired, owner, "pending", -time.Second, "")
	putReference(t, server, done, owner, "completed", 0, "receipt/1")

	begin(t, o, live, operation.BeginInProgress)
	l := operation.Lease{Identity: live, Token: owner}
	if r, err := o.Renew(t.Context(), l); err != nil || r.Outcome != operation.RenewRenewed {
		t.Fatalf("renew: %+v, %v", r, err)
	}
	complete(t, o, l, "receipt/2", operation.CompleteCompleted)
	status(t, o, expired, operation.StatusRecoveryRequired)
	if r := begin(t, o, done, operation.BeginCompleted); r.ResultRef != "receipt/1" {
		t.Fatalf("completed with %q", r.ResultRef)
	}

	// What it does not count, the coordinator does, as far as it sees it.
	second := begin(t, o, expired, operation.BeginAcquired).Lease
	if second.Attempt != 2 || !second.Takeover {
		t.Fatalf("took over from the reference as %+v", second)
	}
	if _, err := o.Abandon(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	putReference(t, server, expired, operation.NewToken(), "pending", -time.Second, "")
	if l := begin(t, o, expired, operation.BeginAcquired).Lease; l.Attempt != 4 || !l.Takeover {
		t.Fatalf("after an attempt of the reference in between: %+v", l)
	}
}

// Only what needs it has a second key, it has the record's hash tag, and it never
// outlives the record.
func TestTheAttemptsAreKeptBesideTheRecordAndEndWithIt(t *testing.T) {
	server := testkit.StartRedis(t)
	o := open(t, server.Addr(), retention(time.Hour))
	id := identity("beside")
	record := operation.RecordKey("coord", id)
	beside := strings.TrimSuffix(record, "record") + "attempts"
	if strings.Count(beside, "{") != 1 || beside[strings.Index(beside, "{"):strings.Index(beside, "}")] != record[strings.Index(record, "{"):strings.Index(record, "}")] {
		t.Fatalf("%s and %s are not in one slot", record, beside)
	}
	exists := func(want int64) {
		t.Helper()
		if n := server.Must("EXISTS", beside); n != want {
			t.Fatalf("%v keys beside the record, want %d", n, want)
		}
	}
	l := begin(t, o, id, operation.BeginAcquired).Lease
	exists(0)
	if _, err := o.Abandon(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	exists(1)
	l = begin(t, o, id, operation.BeginAcquired).Lease
	server.Must("PEXPIRE", beside, 1000)
	if _, err := o.Renew(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if ttl := server.Must("PTTL", beside).(int64); ttl < 3_500_000 {
		t.Fatalf("after a renewal the attempts live for %d ms, the record for an hour", ttl)
	}
	complete(t, o, l, "ref", operation.CompleteCompleted)
	if attempts, record := server.Must("PEXPIRETIME", beside).(int64), server.Must("PEXPIRETIME", record).(int64); attempts > record {
		t.Fatalf("the attempts end at %d, the record at %d", attempts, record)
	}
}

func TestARecordThatIsNoneIsRejectedAndLeftAlone(t *testing.T) {
	server := testkit.StartRedis(t)
	signals, logs := watched()
	o := openWith(t, signals, server.Addr())
	good := identity("good")
	begin(t, o, good, operation.BeginAcquired)
	sound := server.Must("GET", operation.RecordKey("coord", good)).(string)
	for i, raw := range []string{
		"", "x", "[]", "null", "7", `"text"`, "{}", strings.Repeat(" ", 2048) + sound,
		strings.Replace(sound, `"schema":1`, `"schema":2`, 1),
		strings.Replace(sound, `"schema":1`, `"schema":"1"`, 1),
		strings.Replace(sound, `"schema":1`, `"schema":1,"extra":1`, 1),
		strings.Replace(sound, `"resultRef":""`, `"resultRef":"x"`, 1),
		strings.Replace(sound, `,"resultRef":""`, ``, 1),
		strings.Replace(sound, `"pending"`, `"completed"`, 1),
		strings.Replace(sound, `"pending"`, `"else"`, 1),
		regexp.MustCompile(`"leaseUntilMs":"\d+"`).ReplaceAllString(sound, `"leaseUntilMs":"0"`),
		regexp.MustCompile(`"leaseUntilMs":"\d+"`).ReplaceAllString(sound, `"leaseUntilMs":"01"`),
		regexp.MustCompile(`"leaseUntilMs":"\d+"`).ReplaceAllString(sound, `"leaseUntilMs":1`),
		regexp.MustCompile(`"leaseUntilMs":"\d+"`).ReplaceAllString(sound, `"leaseUntilMs":"99999999999999999"`),
		regexp.MustCompile(`"retainUntilMs":"\d+"`).ReplaceAllString(sound, `"retainUntilMs":"1"`),
		regexp.MustCompile(`"owner":"\w+"`).ReplaceAllString(sound, `"owner":"short"`),
		regexp.MustCompile(`"owner":"\w+"`).ReplaceAllString(sound, `"owner":null`),
		regexp.MustCompile(`"durableId":"[^"]+"`).ReplaceAllString(sound, `"durableId":"a b"`),
	} {
		id := identity(fmt.Sprint("bad-", i))
		key := operation.RecordKey("coord", id)
		server.Must("SET", key, raw)
		l := operation.Lease{Identity: id, Token: operation.NewToken()}
		for name, err := range everyCommand(t, o, l) {
			var rejected *operation.RejectedError
			if class(err) != "rejected" || !asRejected(err, &rejected) || rejected.Code != "INVALID_RECORD" {
				t.Errorf("%s on %q: %v", name, raw, err)
			}
		}
		if now := server.Must("GET", key); now != raw {
			t.Errorf("%q became %q", raw, now)
		}
	}
	if emitted(logs, "redis.operation.rejected") == 0 {
		t.Error("nothing was emitted")
	}
}
