package operationstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/wrkbelt/coord/redismodule/internal/conn"
)

// errUnproven is a start that failed because the server, or what stands before it, is not
// a primary whose keys and commands arrive once and as they are.
var errUnproven = errors.New("not a proven primary")

func unproven(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errUnproven, fmt.Errorf(format, args...))
}

// remedies say what to look at when the server answers with an error that begins so.
// Settings are named as in [Config].
var remedies = []struct{ reply, remedy string }{
	{"WRONGPASS", "the credentials are wrong: check Redis.Username and Redis.Password, or the user part of Redis.URL"},
	{"NOAUTH", "it asks for a password: set Redis.Password, or the user part of Redis.URL"},
	{"ERR invalid password", "the credentials are wrong: check Redis.Password, or the user part of Redis.URL"},
	{"ERR AUTH <password> called without any password configured", "it has no password: unset Redis.Password, or name a user in Redis.Username"},
	{"ERR Client sent AUTH, but no password is set", "it has no password: unset Redis.Password"},
	{"ERR max number of clients reached", "it takes no more connections: raise its maxclients, or lower MaxActive or Redis.PoolSize of its clients"},
	{"ERR DB index is out of range", "it has no such database: check Redis.DB"},
	{"ERR SELECT is not allowed in cluster mode", "it is a Cluster node: unset Redis.DB and set Redis.Mode to cluster"},
	{"ERR This instance has cluster support disabled", "it is no Cluster node: check Redis.Mode"},
	{"MOVED", "it is a Cluster node: set Redis.Mode to cluster"},
	{"CLUSTERDOWN", "the Cluster does not serve all slots: look at CLUSTER INFO"},
	{"LOADING", "it is loading its data: start again when it has"},
	{"MASTERDOWN", "it is a replica that has lost its primary: check Redis.Addresses"},
	{"BUSY", "a script keeps it busy: SCRIPT KILL ends one that has not written"},
	{"DENIED", "it is in protected mode: see protected-mode and bind in its redis.conf"},
}

// explained says of an error that a start met at verb what it comes from and which setting
// to look at. It adds no secret, and the server's own words hold none.
func explained(verb string, err error) error {
	var reply redis.Error
	switch code, refused := conn.RefusalCode(err); {
	case refused && code == "NOPERM":
		return fmt.Errorf("the ACL of the Redis user denies %s: add %s: %w", verb, permissionOf(verb, err), err)
	case errors.As(err, &reply):
		for _, r := range remedies {
			if strings.HasPrefix(reply.Error(), r.reply) {
				return fmt.Errorf("redis refuses: %s: %w", r.remedy, err)
			}
		}
		return fmt.Errorf("redis refuses %s: %w", verb, err)
	}
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var record tls.RecordHeaderError
	var network net.Error
	switch {
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &record):
		return fmt.Errorf("redis cannot be reached over TLS: check Redis.TLS, and that the port is the TLS one: %w", err)
	case strings.Contains(err.Error(), "sentinel"):
		return fmt.Errorf("no sentinel names a primary: check Redis.Addresses, which are the sentinels', Redis.MasterName and Redis.SentinelPassword: %w", err)
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		// The client library reads past what the server says before it closes.
		return fmt.Errorf("redis closes new connections at once: it has reached its maxclients (raise it, or lower MaxActive or Redis.PoolSize of its clients), or it wants TLS (set Redis.TLS): %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("redis does not answer in time: check Redis.Addresses or Redis.URL, and the network between: %w", err)
	}
	return fmt.Errorf("redis cannot be reached: check that it runs, Redis.Addresses or Redis.URL, and Redis.TLS if it wants that: %w", err)
}

// deniedCommand finds the command in a NOPERM: it can be one of the connection's own.
var deniedCommand = regexp.MustCompile(`to run the '([^']+)' command`)

// permissionOf is the ACL rule that is missing.
func permissionOf(verb string, err error) string {
	if named := deniedCommand.FindStringSubmatch(err.Error()); named != nil {
		return "+" + named[1]
	}
	if strings.Contains(err.Error(), " key") { // "… to access one of the keys used as arguments"
		return "~lltx:v1:*"
	}
	return "+" + strings.ToLower(verb)
}
