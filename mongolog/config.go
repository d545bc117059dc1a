package mongolog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/health"
)

// DefaultCollection is where the log is kept unless configured otherwise.
const DefaultCollection = "idempotency_log"

// Config describes the MongoDB deployment and the log's place in it. The zero value
// of every field but the URI has a working default; the database's default is the
// URI's.
type Config struct {
	// URI is mongodb://[user:password@]host[:port][,…][/database][?options], or
	// mongodb+srv://. Options that the log's promises rest on are overridden: write
	// and read concern, read preference and retries.
	URI string
	// Database is the database's name; default the one in the URI's path.
	Database string
	// Collection is the collection's name; default [DefaultCollection].
	Collection string
	// SkipIndexCreation leaves the making of indexes to the operator. They are
	// checked all the same: the log does not start without its unique index.
	SkipIndexCreation bool

	// Timeout bounds a call whose context has no deadline, 10 ms to 10 min; default
	// 10 s.
	Timeout time.Duration
	// TryTimeout bounds one try of a call, so that a silent server leaves time for
	// another, 10 ms to 1 min; default 2 s.
	TryTimeout time.Duration
	// MaxPoolSize is the most connections to one server, 1 to 10,000; default 20.
	MaxPoolSize int

	// Telemetry receives metrics and spans; the zero value means none.
	Telemetry observability.Telemetry

	// Health, which may be nil, learns whether the log works, as its part mongodb.
	Health *health.Health

	// Dial replaces the network dialer, for tests; may be nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Settled returns the config with its defaults filled in, or every setting that is
// out of range. Messages name the setting and what is allowed, and never contain the
// URI or a password. It does no I/O.
func (c Config) Settled() (Config, error) {
	var bad []error
	refuse := func(setting string, value any, allowed string) {
		bad = append(bad, fmt.Errorf("mongo %s: %v: want %s", setting, value, allowed))
	}
	const form = "mongodb://[user:password@]host[:port][/database][?options], or mongodb+srv://"
	switch database, err := parseURI(c.URI); {
	case c.URI == "":
		refuse("URI", "not set", form)
	case err != nil:
		refuse("URI", "not usable (its text is left out, it may hold a password)", form)
	case c.Database == "" && database == "":
		refuse("Database", "not set, and none in the URI's path", "a database name")
	case c.Database == "":
		c.Database = database
	}
	if c.Database != "" && (len(c.Database) > 63 || strings.ContainsAny(c.Database, "/\\. \"$*<>:|?\x00")) {
		refuse("Database", fmt.Sprintf("%q", c.Database), `1 to 63 bytes without any of / \ . " $ * < > : | ? or spaces`)
	}
	if c.Collection == "" {
		c.Collection = DefaultCollection
	}
	if len(c.Collection) > 120 || strings.ContainsAny(c.Collection, "$\x00") || strings.HasPrefix(c.Collection, "system.") {
		refuse("Collection", fmt.Sprintf("%q", c.Collection), "1 to 120 bytes without $, not beginning with system.")
	}
	number(&c.Timeout, 10*time.Second, 10*time.Millisecond, 10*time.Minute, "Timeout", refuse)
	number(&c.TryTimeout, 2*time.Second, 10*time.Millisecond, time.Minute, "TryTimeout", refuse)
	number(&c.MaxPoolSize, 20, 1, 10_000, "MaxPoolSize", refuse)
	return c, errors.Join(bad...)
}

// number fills in a default and checks a range.
func number[N int | time.Duration](value *N, standard, least, most N, setting string, refuse func(string, any, string)) {
	if *value == 0 {
		*value = standard
	}
	if *value < least || *value > most {
		refuse(setting, *value, fmt.Sprintf("%v to %v", least, most))
	}
}

// parseURI checks a URI as far as that needs no I/O and returns the database in its
// path.
func parseURI(uri string) (database string, err error) {
	scheme, rest, _ := strings.Cut(uri, "://")
	switch scheme {
	case "mongodb":
		if err := options.Client().ApplyURI(uri).Validate(); err != nil {
			return "", err
		}
	case "mongodb+srv": // the driver's parser would ask the name server
	default:
		return "", errors.New("unknown scheme")
	}
	rest, _, _ = strings.Cut(rest, "?")
	rest = rest[strings.LastIndex(rest, "@")+1:]
	hosts, path, _ := strings.Cut(rest, "/")
	if hosts == "" {
		return "", errors.New("no host")
	}
	return url.PathUnescape(path)
}
