package conn

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"sync/atomic"
)

// Script is one Lua script, named by its digest once a server knows it.
type Script struct {
	Name   string
	source []byte
	digest []byte
}

var evalsha, eval = []byte("evalsha"), []byte("eval")

// NewScript prepares source.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return &Script{Name: name, source: []byte(source), digest: []byte(hex.EncodeToString(sum[:]))}
}

// run is one call of a script. Whether it names the script or has it whole is chosen when
// it is written, over a connection that is there by then: whole, if any has been dialled
// since the script was last run whole, as the server may be another or have started anew.
// So no caller learns from a refusal that a server has started, however many come at once.
//
// A server of a Cluster is not told from its fellows. What one of them has run, another one
// may refuse once.
type run struct {
	script *Script
	known  *atomic.Int64 // dials when the script was last run whole; 0: to be sent whole
	dials  *atomic.Int64
	refuse bool // to name it: the server has just forgotten it

	// Of the last writing.
	whole bool
	at    int64

	room [10]any // for as many arguments as a lock has
}

// choose is called at each writing.
func (r *run) choose() {
	r.at = r.dials.Load()
	r.whole = r.refuse || r.known.Load() != r.at
}

// ran notes that the server has run the script.
func (r *run) ran() {
	if r.whole {
		r.known.Store(r.at)
	}
}

// forgotten notes that the server does not know the script. Whoever comes now sends it
// whole too.
func (r *run) forgotten() {
	r.known.Store(0)
	r.refuse = true
}

// verb and body are the first two arguments, in this order.
type (
	verb run
	body run
)

// MarshalBinary is how the client library writes an argument. It does not fail.
func (v *verb) MarshalBinary() ([]byte, error) {
	if (*run)(v).choose(); v.whole {
		return eval, nil
	}
	return evalsha, nil
}

// String is what the client library takes the name from by which it finds the keys.
func (*verb) String() string { return "evalsha" }

// MarshalBinary is as verb's.
func (b *body) MarshalBinary() ([]byte, error) {
	if b.whole {
		return b.script.source, nil
	}
	return b.script.digest, nil
}
