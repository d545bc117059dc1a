package mongolog

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/wrkbelt/coord/semantic"
	"github.com/wrkbelt/coord/testkit"
)

// TestACutAtAnyCommandIsResolved cuts the connection at every command of every call,
// before and after the server has applied it. The answer and the document are then
// the same as without the cut.
func TestACutAtAnyCommandIsResolved(t *testing.T) {
	// The least age: one's own first try must not be taken over by the second.
	takeover := request
	takeover.RetryFailed, takeover.TakeOverPendingAfter = true, semantic.MinTTL
	failed := semantic.Finalization{Status: semantic.StatusFailed, Metadata: map[string]string{"a.b": "$c"}}

	acquire := func(req semantic.IdempotencyRequest) func(t *testing.T, l *Log) string {
		return func(t *testing.T, l *Log) string {
			res := l.TryAcquire(t.Context(), req)
			return fmt.Sprintf("%t %q %v %d %t %s", res.Acquired, res.Reason, res.Err, res.Record.Attempt, res.Record.TakenOver, res.Record.Status)
		}
	}
	var id semantic.RecordID
	finalize := func(t *testing.T, l *Log) string { return fmt.Sprint(l.Finalize(t.Context(), id, failed)) }
	prepare := func(t *testing.T, l *Log) { id = l.TryAcquire(t.Context(), request).Record.ID }
	prepareFailed := func(t *testing.T, l *Log) {
		prepare(t, l)
		if err := l.Finalize(t.Context(), id, failed); err != nil {
			t.Fatal(err)
		}
	}
	calls := []struct {
		name    string
		prepare func(t *testing.T, l *Log)
		call    func(t *testing.T, l *Log) string
		want    string
	}{
		{"acquire", func(*testing.T, *Log) {}, acquire(request), `true "" <nil> 1 false PENDING`},
		{"duplicate", prepare, acquire(request), `false "duplicate" <nil> 1 false PENDING`},
		{"retry", prepareFailed, acquire(takeover), `true "" <nil> 2 false PENDING`},
		{"takeover", prepare, acquire(takeover), `true "" <nil> 2 true PENDING`},
		{"finalize", prepare, finalize, "<nil>"},
		{"finalize again", prepareFailed, finalize, "<nil>"},
	}
	onBoth(t, func(t *testing.T, s *fakeServer) {
		l, _ := startLog(t, s)
		for _, c := range calls {
			fresh := func() {
				s.with(func() { s.docs = nil })
				c.prepare(t, l)
				s.clock.Advance(time.Second)
				s.with(func() { s.commands = nil })
			}
			fresh()
			if got := c.call(t, l); got != c.want {
				t.Fatalf("%s without a cut: %s, want %s", c.name, got, c.want)
			}
			var commands []string
			s.with(func() {
				for _, command := range s.commands {
					commands = append(commands, command[0].Key)
				}
			})
			document := s.stored()
			for n, command := range commands {
				for _, fault := range []testkit.Fault{testkit.FaultLoseReply, faultLoseRequest} {
					fresh()
					seen := 0
					s.with(func() {
						s.before = func(name string) {
							s.clock.Advance(10 * time.Millisecond) // older than the least age by the second try
							s.with(func() {
								if name == "hello" || name == "isMaster" {
									return
								}
								if seen == n {
									s.fault = fault
								}
								seen++
							})
						}
					})
					got := c.call(t, l)
					s.with(func() { s.before, s.fault = nil, "" })
					if got != c.want {
						t.Errorf("%s with %s at %s: %s, want %s", c.name, fault, command, got, c.want)
					}
					if got := s.stored(); got != document {
						t.Errorf("%s with %s at %s left %s, want %s", c.name, fault, command, got, document)
					}
				}
			}
		}
	})
}

// stored is every document without what differs from run to run.
func (s *fakeServer) stored() string {
	var out []string
	s.with(func() {
		for _, d := range s.docs {
			var kept bson.D
			for _, e := range d {
				switch e.Value.(type) {
				case bson.ObjectID, bson.DateTime:
				default:
					if e.Key != "attempt_id" {
						kept = append(kept, e)
					}
				}
			}
			out = append(out, fmt.Sprint(kept))
		}
	})
	return fmt.Sprint(out)
}

// dbos-transact-py#544: the same id started concurrently ran the body several times.
func TestOfManyCallersExactlyOneWinsOnEveryPath(t *testing.T) {
	const rounds, callers = 3, 64
	retry := request
	retry.RetryFailed, retry.TakeOverPendingAfter = true, time.Minute
	paths := map[string]func(t *testing.T, s *fakeServer, l *Log){
		"fresh":   func(_ *testing.T, s *fakeServer, _ *Log) { s.with(func() { s.docs = nil }) },
		"expired": func(_ *testing.T, s *fakeServer, _ *Log) { s.clock.Advance(100 * 24 * time.Hour) },
		"stale":   func(_ *testing.T, s *fakeServer, _ *Log) { s.clock.Advance(time.Minute) },
		"failed": func(t *testing.T, s *fakeServer, l *Log) {
			s.with(func() { s.docs = nil })
			id := l.TryAcquire(t.Context(), request).Record.ID
			if err := l.Finalize(t.Context(), id, semantic.Finalization{Status: semantic.StatusFailed}); err != nil {
				t.Fatal(err)
			}
		},
	}
	onBoth(t, func(t *testing.T, s *fakeServer) {
		var logs []*Log
		for range 4 {
			l, _ := startLog(t, s)
			logs = append(logs, l)
		}
		for path, prepare := range paths {
			for range rounds {
				prepare(t, s, logs[0])
				won := make(chan bool, callers)
				start := make(chan struct{})
				for i := range callers {
					go func() {
						<-start
						res := logs[i%len(logs)].TryAcquire(t.Context(), retry)
						if res.Err != nil {
							t.Errorf("%s: %v", path, res.Err)
						}
						won <- res.Acquired
					}()
				}
				close(start)
				winners := 0
				for range callers {
					if <-won {
						winners++
					}
				}
				if winners != 1 {
					t.Fatalf("%s: %d winners, want 1", path, winners)
				}
			}
		}
	})
}
