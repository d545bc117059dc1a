package conn

import "time"

// limit is when one direction of a socket ends its wait. To arm a deadline costs a
// timer, and a busy socket is given a later one with each call; so the earlier one stays
// armed as long as it has not passed, and whoever it wakes goes on waiting.
type limit struct {
	set    func(time.Time) error // arms
	lazy   bool                  // else a wait that was woken cannot go on
	wanted time.Time             // zero: none
	armed  time.Time             // zero: none
}

// until makes t the end of the wait; zero is none.
func (l *limit) until(t, now time.Time) error {
	l.wanted = t
	if l.lazy && (t.IsZero() && l.armed.IsZero() || l.armed.After(now) && (t.IsZero() || !l.armed.After(t))) {
		return nil
	}
	return l.arm()
}

// early tells whether the armed deadline has ended a wait that is to go on, and arms
// the one that is wanted.
func (l *limit) early(now time.Time) bool {
	if !l.lazy || !l.wanted.IsZero() && !l.wanted.After(now) {
		return false
	}
	return l.arm() == nil
}

func (l *limit) arm() error {
	l.armed = l.wanted
	return l.set(l.wanted)
}
