package operationstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
)

// settings are those of one replica of a rolling deploy.
type settings struct{ lease, retention time.Duration }

const (
	longestLease = 10 * time.Minute
	// moment is what a life's calls surely take less than: no instant is met to the
	// millisecond.
	moment  = 2 * time.Second
	longAgo = -1000 * time.Hour
)

// mixedSettings have leases and retentions on both sides of the step of a minute.
var mixedSettings = []settings{
	{20 * time.Second, 25 * time.Second},
	{20 * time.Second, operation.MaxRetention},
	{longestLease, longestLease + 5*time.Second},
	{longestLease, operation.MaxRetention},
}

// expected is what the contract says that a record is, by a clock that steps. It is the
// state table once more, written down without Redis.
type expected struct {
	exists, completed, abandoned, earlier bool
	renamed                               bool // the last begin came under a token whose lease had ended
	forgotten                             bool // an earlier record of this key expired; what is beside it may not have, and is counted
	owner                                 operation.Token
	attempt                               int
	ends, kept                            time.Duration // instants of the server's clock
}

// answer gives the outcome of a command at an instant, and makes its change.
func (x *expected) answer(command string, token operation.Token, now time.Duration, s settings) string {
	if x.exists && now >= x.kept {
		*x = expected{forgotten: true}
	}
	mine, live := x.exists && x.owner == token, x.exists && !x.completed && now < x.ends
	write := func(ends time.Duration) {
		x.ends, x.kept = ends, min(max(x.kept, now+s.retention), now+operation.MaxRetention)
	}
	switch command {
	case "readStatus":
		switch {
		case !x.exists:
			return "missing"
		case x.completed:
			return "completed"
		case live:
			return "in_progress"
		}
		return "recovery_required"
	case "begin":
		switch {
		case x.completed:
			return "completed"
		case live && mine:
			x.renamed = false
			return "acquired"
		case live:
			return "in_progress"
		}
		x.renamed = mine
		x.earlier = x.exists && (x.earlier || !x.abandoned)
		x.exists, x.abandoned, x.attempt = true, false, x.attempt+1
		write(now + s.lease)
		return "acquired"
	case "renew":
		if !live || !mine {
			return "lost"
		}
		write(now + s.lease)
		return "renewed"
	case "complete":
		switch {
		case x.completed: // with the same reference, whoever it is
			return "completed"
		case !live || !mine:
			return "lost"
		}
		x.completed = true
		write(longAgo)
		return "completed"
	}
	switch { // abandon
	case !mine || x.completed || !live && !x.abandoned:
		return "lost"
	case live:
		x.abandoned = true
		write(longAgo)
	}
	return "abandoned"
}

// lives are the ways of a record, by the replica that writes it. "pass" lets the longest
// lease go by.
var lives = [][]string{
	{"begin", "renew", "complete"},
	{"begin", "abandon"},
	{"begin", "pass", "begin", "renew"},
}

// stepPatterns are steps of the server's clock at one point of a life.
var stepPatterns = [][]time.Duration{
	{time.Minute},
	{-time.Minute},
	{time.Minute, -time.Minute},
	{-time.Minute, time.Minute, time.Minute, -time.Minute},
}

// Two replicas with other leases and retentions, and a server whose clock steps by a
// minute and back at every point of a record's life: every answer of every command is
// the one of the state table, no error of any class among them, and the record can be
// completed within the longest lease of server time.
//
// In the reference a reader with a shorter lease takes a longer one's answer for
// Unknown, and a step back with the longest retention refuses every write.
func TestMixedSettingsAndClockStepsAreNeverUnknownAndNothingIsStuck(t *testing.T) {
	server := startSteppedServer(t)
	replicas := map[settings]*Opened{}
	for _, s := range mixedSettings {
		replicas[s] = open(t, server.Addr(), lease(s.lease), retention(s.retention))
	}
	n, calls := 0, 0
	for _, writer := range mixedSettings {
		for _, reader := range mixedSettings {
			for _, verbs := range lives {
				for at := range len(verbs) + 1 {
					for _, steps := range stepPatterns {
						for _, command := range []string{"begin", "renew", "complete", "abandon", "readStatus"} {
							for _, byOwner := range []bool{true, false} {
								if command == "readStatus" && !byOwner {
									continue // a read has no owner
								}
								n++
								l := life{
									t: t, server: server, id: identity(fmt.Sprint("life-", n)), replicas: replicas,
									describe: fmt.Sprintf("lease and retention %v, read with %v, %v, steps %v before the %d., then %s by its owner %v", writer, reader, verbs, steps, at+1, command, byOwner),
								}
								l.run(writer, reader, verbs, at, steps, command, byOwner)
								calls += l.calls
								if t.Failed() {
									return
								}
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d lives, %d calls", n, calls)
}

// life is one record's.
type life struct {
	t        *testing.T
	server   *steppedServer
	replicas map[settings]*Opened
	id       operation.Identity
	describe string

	want  expected
	owner operation.Lease // the last acquired
	calls int
}

func (l *life) run(writer, reader settings, verbs []string, at int, steps []time.Duration, command string, byOwner bool) {
	start := l.server.off
	defer func() { l.server.step(start - l.server.off) }() // the record is nobody's any more
	l.owner = operation.Lease{Identity: l.id, Token: operation.NewToken()}
	for i := range len(verbs) + 1 {
		if i == at {
			for _, d := range steps {
				l.server.step(d)
				l.call(reader, "readStatus", true)
				l.call(writer, "readStatus", true)
			}
		}
		switch {
		case i == len(verbs):
		case verbs[i] == "pass":
			l.server.step(longestLease + moment)
			l.call(reader, "readStatus", true)
		default:
			l.call(writer, verbs[i], true)
		}
	}
	l.call(reader, command, byOwner)

	// Nobody need wait longer than the longest lease from the last write, by the server.
	if left := l.want.ends - l.server.off; left > 0 {
		l.server.step(left + moment)
	}
	l.call(writer, "readStatus", true)
	l.owner.Token = operation.NewToken()
	l.call(reader, "begin", true)
	l.call(reader, "complete", true)
	l.call(writer, "readStatus", true)
	if !l.want.completed {
		l.t.Fatalf("%s: not completed", l.describe)
	}
	if ttl := l.server.Must("PTTL", operation.RecordKey("coord", l.id)).(int64); ttl < 1 || ttl > (operation.MaxRetention+time.Minute).Milliseconds() {
		l.t.Fatalf("%s: the record lives for %d ms", l.describe, ttl)
	}
}

// call makes one call and holds its whole answer against the expected one. What the
// calls themselves take is far below the settings' differences.
func (l *life) call(s settings, command string, byOwner bool) {
	l.t.Helper()
	l.calls++
	c, asked, ctx := l.replicas[s], l.owner, l.t.Context()
	if !byOwner {
		asked.Token = operation.NewToken()
	}
	want := l.want.answer(command, asked.Token, l.server.off, s)
	left := l.want.ends - l.server.off
	fail := func(got any, err error) {
		l.t.Helper()
		if err != nil || !strings.HasPrefix(fmt.Sprintf("%+v", got), "{Outcome:"+want+" ") && fmt.Sprintf("%+v", got) != "{Outcome:"+want+"}" {
			l.t.Fatalf("%s: %s: %+v, %v (%s); want %s", l.describe, command, got, err, class(err), want)
		}
	}
	about := func(what string, got, want time.Duration) {
		l.t.Helper()
		if got > want || got < want-want/50-moment { // the local clock may drift
			l.t.Fatalf("%s: %s: %s %v, want %v", l.describe, command, what, got, want)
		}
	}
	reference := func(ref string) {
		l.t.Helper()
		if (want == "completed") != (ref == "ref") {
			l.t.Fatalf("%s: %s: %s with reference %q", l.describe, command, want, ref)
		}
	}
	switch command {
	case "begin":
		r, err := c.Begin(ctx, l.id, operation.WithToken(asked.Token))
		fail(r, err)
		reference(r.ResultRef)
		switch want {
		case "in_progress":
			about("remaining", r.Remaining, left)
		case "acquired":
			got := r.Lease
			more := l.want.forgotten && got.Attempt > l.want.attempt
			if got.Attempt != l.want.attempt && !more || got.Takeover != l.want.earlier && (!more || l.want.earlier) || !r.MustReconcile || (got.Token != asked.Token) != l.want.renamed {
				l.t.Fatalf("%s: acquired %+v, want %+v", l.describe, r, l.want)
			}
			// Relied on by the local clock, never for more than was asked.
			about("relied on", time.Until(got.ValidUntil), min(left, s.lease))
			l.owner, l.want.owner = got, got.Token
		}
	case "renew":
		r, err := c.Renew(ctx, asked)
		fail(r, err)
		if want == "renewed" {
			about("relied on", time.Until(r.Lease.ValidUntil), s.lease)
		}
	case "complete":
		r, err := c.Complete(ctx, asked, "ref")
		fail(r, err)
		reference(r.ResultRef)
	case "abandon":
		r, err := c.Abandon(ctx, asked)
		fail(r, err)
	default:
		r, err := c.ReadStatus(ctx, l.id)
		fail(r, err)
		reference(r.ResultRef)
		if want == "in_progress" {
			about("remaining", r.Remaining, left)
		}
	}
}
