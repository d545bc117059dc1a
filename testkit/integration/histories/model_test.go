package histories

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// verb is what was asked of a key.
type verb string

const (
	acquire  verb = "acquire"  // lock: take with a new token
	free     verb = "release"  // lock: give up
	claim    verb = "claim"    // lease: take or refresh
	takeOver verb = "takeOver" // lease: take whoever has it
	giveUp   verb = "giveUp"   // lease: release
	crash    verb = "crash"    // the server lost everything
	failover verb = "failover" // the server may have lost the last writes
)

// input is one call; who is a token or a holder.
type input struct {
	verb verb
	key  string
	who  string
}

// output is what the caller was told.
type output struct {
	ok      bool
	unknown bool   // applied at some time from the call on, or never
	other   string // the other holder it was told of
}

// state is who holds the key, and who did before: what a failover may bring back.
type state struct {
	holder string
	past   [4]string
}

func (s state) to(holder string) state {
	if holder == s.holder {
		return s
	}
	copy(s.past[1:], s.past[:3])
	s.past[0], s.holder = s.holder, holder
	return s
}

// step returns every state that may follow in which out is a right answer.
func step(s state, in input, out output) []state {
	var applied []state // states in which the call did what it was asked
	switch in.verb {
	case acquire:
		if s.holder == "" || s.holder == in.who {
			applied = []state{s.to(in.who)}
		} else if !out.ok {
			return []state{s} // contended, or a try that met another's lock
		}
	case free, giveUp:
		if s.holder == in.who {
			applied = []state{s.to("")}
		} else if in.verb == free || (!out.ok && out.other == s.holder) || out.unknown {
			return []state{s} // a lock's release says nothing
		}
	case claim:
		if s.holder == "" || s.holder == in.who {
			applied = []state{s.to(in.who)}
		} else if !out.ok {
			return []state{s}
		}
	case takeOver:
		if out.unknown || out.other == s.holder {
			applied = []state{s.to(in.who)}
		}
	case crash:
		return []state{s.to("")}
	case failover:
		all := []state{s, s.to("")}
		for _, past := range s.past {
			all = append(all, s.to(past))
		}
		return all
	}
	switch {
	case out.unknown:
		return append(applied, s)
	case out.ok || in.verb == free:
		return applied
	}
	return nil // it said that it was not done although it would have been
}

// model partitions a history by key.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			var everywhere []porcupine.Operation
			for _, o := range history {
				if key := o.Input.(input).key; key == "" {
					everywhere = append(everywhere, o)
				} else {
					byKey[key] = append(byKey[key], o)
				}
			}
			var all [][]porcupine.Operation
			for _, ops := range byKey {
				all = append(all, append(ops, everywhere...))
			}
			return all
		},
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, out any) []any {
			var next []any
			for _, n := range step(s.(state), in.(input), out.(output)) {
				if !slices.Contains(next, any(n)) {
					next = append(next, n)
				}
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v → %+v", in, out)
		},
	}
	return m.ToModel()
}
