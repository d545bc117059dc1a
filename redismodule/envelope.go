package redismodule

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/wrkbelt/coord/semantic"
)

// envelopeVersion begins every broadcast, so that replicas of two releases refuse
// each other's messages rather than misread them.
const envelopeVersion = "1"

// envelope is a broadcast on the wire: a line of text that an operator can read with
// SUBSCRIBE, "1 <instance id> <service>.<number> <payload as JSON>". Service and
// number together name the message, so that a duplicate can be recognised.
type envelope struct {
	origin  string // instance id of the publisher, without spaces
	service string // the publishing service: another one in every process
	number  uint64 // of the service's messages, from 1
	payload []byte
}

func (e envelope) encode() []byte {
	b := make([]byte, 0, len(envelopeVersion)+len(e.origin)+len(e.service)+len(e.payload)+24)
	b = append(b, envelopeVersion...)
	b = append(append(b, ' '), e.origin...)
	b = append(append(b, ' '), e.service...)
	b = strconv.AppendUint(append(b, '.'), e.number, 10)
	return append(append(b, ' '), e.payload...)
}

// decodeEnvelope takes a message apart; the payload is a copy and not looked at.
func decodeEnvelope(text string) (envelope, error) {
	version, rest, _ := strings.Cut(text, " ")
	origin, rest, _ := strings.Cut(rest, " ")
	id, payload, complete := strings.Cut(rest, " ")
	service, digits, _ := strings.Cut(id, ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case !complete:
		return envelope{}, fmt.Errorf("%w: not a broadcast of %d bytes", semantic.ErrCorrupt, len(text))
	case version != envelopeVersion:
		return envelope{}, fmt.Errorf("%w: broadcast of version %.16q, this release has %s", semantic.ErrCorrupt, version, envelopeVersion)
	case origin == "" || service == "" || err != nil:
		return envelope{}, fmt.Errorf("%w: broadcast without origin or message id", semantic.ErrCorrupt)
	}
	return envelope{origin: origin, service: service, number: number, payload: []byte(payload)}, nil
}
