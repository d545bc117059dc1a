package mongolog

import (
	"crypto/rand"
	"regexp"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/wrkbelt/coord/semantic"
)

// document is one side effect as it is stored.
type document struct {
	ID             bson.ObjectID `bson:"_id"`
	OrganizationID string        `bson:"organization_id"`
	Domain         string        `bson:"domain"`
	Key            string        `bson:"idempotency_key"`
	Status         string        `bson:"status"`
	Metadata       []pair        `bson:"metadata"`
	Fingerprint    string        `bson:"fingerprint"`
	AttemptID      string        `bson:"attempt_id"`
	Attempt        int           `bson:"attempt"`
	TakenOver      bool          `bson:"taken_over"`
	AttemptedAt    time.Time     `bson:"attempted_at"`
	CreatedAt      time.Time     `bson:"created_at"`
	UpdatedAt      time.Time     `bson:"updated_at"`
	ExpiresAt      time.Time     `bson:"expires_at"`
}

// pair is one entry of the metadata. As field names, keys with dots or dollars could
// not be stored everywhere.
type pair struct {
	Key   string `bson:"k"`
	Value string `bson:"v"`
}

func pairs(m map[string]string) []pair {
	ps := make([]pair, 0, len(m))
	for k, v := range m {
		ps = append(ps, pair{k, v})
	}
	slices.SortFunc(ps, func(a, b pair) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return ps
}

// record is the document as the contract has it.
func (d document) record() semantic.IdempotencyRecord {
	r := semantic.IdempotencyRecord{
		ID:             recordID{d.ID, d.AttemptID}.encode(),
		OrganizationID: d.OrganizationID, Domain: d.Domain, Key: d.Key,
		Status: semantic.IdempotencyStatus(d.Status), Fingerprint: d.Fingerprint,
		Attempt: d.Attempt, TakenOver: d.TakenOver,
		AttemptedAt: d.AttemptedAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(),
	}
	if len(d.Metadata) > 0 {
		r.Metadata = make(map[string]string, len(d.Metadata))
		for _, p := range d.Metadata {
			r.Metadata[p.Key] = p.Value
		}
	}
	return r
}

// conflicts tells whether req has another fingerprint.
func (d document) conflicts(req semantic.IdempotencyRequest) bool {
	return d.Fingerprint != "" && req.Fingerprint != "" && d.Fingerprint != req.Fingerprint
}

// recordID names a document and the attempt it was at.
type recordID struct {
	document bson.ObjectID
	attempt  string
}

var recordIDForm = regexp.MustCompile(`\A[0-9a-f]{24}\.[A-Z2-7]{26}\z`)

func (id recordID) encode() semantic.RecordID {
	return semantic.RecordID(id.document.Hex() + "." + id.attempt)
}

func parseRecordID(s semantic.RecordID) (id recordID, ok bool) {
	if !recordIDForm.MatchString(string(s)) {
		return recordID{}, false
	}
	document, err := bson.ObjectIDFromHex(string(s[:24]))
	return recordID{document, string(s[25:])}, err == nil
}

// attempt is a request under the identity by which its caller recognises it.
type attempt struct {
	id string
	semantic.IdempotencyRequest
}

func newAttempt(req semantic.IdempotencyRequest) attempt { return attempt{rand.Text(), req} }

// identity is the filter over exactly the unique index.
func (a attempt) identity() bson.D {
	return bson.D{
		{Key: "organization_id", Value: a.OrganizationID},
		{Key: "domain", Value: a.Domain},
		{Key: "idempotency_key", Value: a.Key},
	}
}

func (a attempt) ttl() time.Duration { return time.Duration(a.TTLDays) * 24 * time.Hour }
