package redismodule

import "strings"

// LayoutVersion is the version of the key layout and of what the keys hold. It is
// kept in the namespace; a service of another version refuses to start on it.
const LayoutVersion = "1"

// kind keeps the primitives' keys apart, so that clearing one never reaches another.
type kind string

const (
	kindCache     kind = "cache"
	kindLimit     kind = "limit"
	kindLock      kind = "lock"
	kindLease     kind = "lease"
	kindBroadcast kind = "broadcast"
	kindProbe     kind = "probe" // of links; channels only
	kindLayout    kind = "layout"
)

// keyspace lays out keys as <namespace>:<kind>:{<user key>}<suffix>. The braces make
// the user key the Cluster hash tag, so that all keys of one script share a slot.
type keyspace struct{ namespace string }

var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func (k keyspace) key(of kind, user string, suffix string) string {
	return k.namespace + ":" + string(of) + ":{" + braces.Replace(user) + "}" + suffix
}

// pair is the key of user and another one beside it, which differs by its suffix.
func (k keyspace) pair(of kind, user string, suffix string) (key, beside string) {
	beside = k.key(of, user, suffix)
	return beside[:len(beside)-len(suffix)], beside
}
