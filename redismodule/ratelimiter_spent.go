package redismodule

import (
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

const (
	// maxSpent is how many spent budgets are remembered at most.
	maxSpent = 8192
	// trustSpent bounds how long one answer is relied on, so that clocks which run at
	// different rates stay within a few milliseconds of each other.
	trustSpent = time.Minute
)

// spentBudgets remembers which budgets have no token left, and until when at least.
// While a budget is empty nobody can take from it and a denial writes nothing: its state
// on the server stands still, and an answer stays true, counted down. Only monotonic
// readings of the local clock are compared. A nil pointer remembers nothing.
type spentBudgets struct {
	mu sync.RWMutex
	at map[limitBudget]spentBudget
}

type limitBudget struct {
	key   string
	limit semantic.Limit
}

type spentBudget struct {
	n     int64     // for how many tokens next was answered
	until time.Time // counted from the send: never later than the server has a token
	next  time.Time // counted from the reply: never earlier than n tokens can be there
	full  time.Time // likewise
}

func newSpentBudgets() *spentBudgets { return &spentBudgets{at: map[limitBudget]spentBudget{}} }

// lookup returns the denial that the server would give now, if that is known.
func (s *spentBudgets) lookup(key string, n int64, limit semantic.Limit, now time.Time) (semantic.Decision, bool) {
	if s == nil {
		return semantic.Decision{}, false
	}
	s.mu.RLock()
	b, found := s.at[limitBudget{key, limit}]
	s.mu.RUnlock()
	if !found || !now.Before(b.until) {
		return semantic.Decision{}, false
	}
	// A fixed window gives every number of tokens back at once; with the others it
	// takes longer for more.
	if b.n != n && limit.Algorithm != semantic.FixedWindow {
		return semantic.Decision{}, false
	}
	return semantic.Decision{RetryAfter: b.next.Sub(now), ResetAfter: b.full.Sub(now)}, true
}

// learn keeps an answer that left the budget empty.
func (s *spentBudgets) learn(key string, n int64, limit semantic.Limit, a takeReply, sent, received time.Time) {
	if s == nil {
		return
	}
	b := spentBudget{
		n: n, until: sent.Add(min(a.untilOne, trustSpent)),
		next: received.Add(a.untilNext), full: received.Add(a.untilFull),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := limitBudget{key, limit}
	if old, found := s.at[id]; found && old.until.After(b.until) {
		return // a reply that was overtaken
	} else if !found && len(s.at) >= maxSpent {
		s.evict(received)
	}
	s.at[id] = b
}

// evict makes room for a good while: what has lapsed goes, and if need be others, each
// of which costs no more than a round trip. The mutex is held.
func (s *spentBudgets) evict(now time.Time) {
	for id, b := range s.at {
		if !now.Before(b.until) {
			delete(s.at, id)
		}
	}
	for id := range s.at {
		if len(s.at) <= maxSpent/8*7 {
			return
		}
		delete(s.at, id)
	}
}
