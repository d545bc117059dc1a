package operationstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/probe.lua
var probeLua string

// probeKeys have the form of the record's and of those beside it. No operation has them.
var probeKeys = []string{"lltx:v1:probe:{key}:record", "lltx:v1:probe:{key}:attempts", "lltx:v1:probe:{key}:never"}

// errDenied is a script that the server's ACL stopped at one of its commands. The
// operation script writes its record last, so that the record was not written.
var errDenied = errors.New("the ACL denies a command of the script")

// denial is how servers say it: Redis 7.0, Redis 7.2 and Valkey, and those before 7, which
// wrap what a script met. It is anchored, so that no text within another error is one.
var denial = regexp.MustCompile(`^(ERR Error running script \(call to f_[0-9a-f]{40}\): (@user_script: ?\d+: )+-?)?` +
	`((ERR|NOPERM) )?(The user executing the script can't |ACL failure in script: )`)

// denied gives an error that is such a denial the class errDenied, and nothing of the one
// it had.
func denied(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) && denial.MatchString(reply.Error()) {
		return fmt.Errorf("%w: %w", errDenied, reply)
	}
	return err
}

// permitted shows that the user may run scripts by source and by digest, that the scripts
// may do what they do, and that keys reach the server as they were sent. It writes
// nothing. Two round trips.
func permitted(ctx context.Context, client redis.UniversalClient) error {
	seen, err := probe(ctx, client, "EVAL", probeLua)
	if err != nil {
		return err
	}
	for i, key := range probeKeys {
		if seen[i] != key {
			return unproven("client rewrites keys: %q arrived as %q", key, seen[i])
		}
	}
	var missing []string
	for i := len(probeKeys); i+1 < len(seen); i += 2 {
		if denial.MatchString(seen[i+1]) {
			missing = append(missing, "+"+seen[i])
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the ACL of the Redis user denies what the script does: add %s", strings.Join(missing, " "))
	}
	sum := sha1.Sum([]byte(probeLua)) //nolint:gosec // see above
	_, err = probe(ctx, client, "EVALSHA", hex.EncodeToString(sum[:]))
	return err
}

// probe runs the probe script and returns the keys as they arrived, and after them each
// command that failed with its error.
func probe(ctx context.Context, client redis.UniversalClient, verb, script string) ([]string, error) {
	args := []any{verb, script, len(probeKeys)}
	for _, key := range probeKeys {
		args = append(args, key)
	}
	seen, err := client.Do(ctx, args...).StringSlice()
	switch {
	case verb == "EVALSHA" && redis.HasErrorPrefix(err, "NOSCRIPT"):
		return nil, nil // flushed in between: the user may run it
	case err != nil:
		return nil, explained(verb, err)
	case len(seen) < len(probeKeys):
		return nil, fmt.Errorf("something other than Redis answers: %s gave %q", verb, seen)
	}
	return seen, nil
}
