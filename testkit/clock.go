package testkit

import (
	"slices"
	"sync"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// Clock is a clock that moves only when told to. It is the local clock and the
// backend's clock of every double made with it. Safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*timer // by due time, then by age

	followers []func(now time.Time)
}

var _ semantic.Clock = (*Clock)(nil)

type timer struct {
	due time.Time
	run func()
}

// NewClock returns a clock that stands at noon UTC of 1 June 2026.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)}
}

// Now returns the instant at which the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc runs f on its own goroutine when the clock has been moved d further, at
// once if d is not positive.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d <= 0 {
		go f()
		return func() bool { return false }
	}
	t := &timer{due: c.now.Add(d), run: f}
	at, _ := slices.BinarySearchFunc(c.timers, t, func(a, b *timer) int {
		if a.due.After(b.due) {
			return 1
		}
		return -1 // equal ones stay in the order of their making
	})
	c.timers = slices.Insert(c.timers, at, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, t)
		if i < 0 {
			return false
		}
		c.timers = slices.Delete(c.timers, i, i+1)
		return true
	}
}

// Advance moves the clock by d, stopping at each timer on the way: its function has
// returned before the clock goes on, unless it takes longer than a second of real
// time. A negative d steps the clock back and runs nothing.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for len(c.timers) > 0 && !c.timers[0].due.After(end) {
		t := c.timers[0]
		c.timers = c.timers[1:]
		c.now = t.due
		c.unlockAndTell()
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			t.run()
		}()
		select {
		case <-returned:
		case <-time.After(time.Second):
		}
		c.mu.Lock()
	}
	c.now = end
	c.unlockAndTell()
}

// follow calls f now and after each move of the clock, before the timers due then.
func (c *Clock) follow(f func(now time.Time)) {
	c.mu.Lock()
	c.followers = append(c.followers, f)
	now := c.now
	c.mu.Unlock()
	f(now)
}

func (c *Clock) unlockAndTell() {
	now, followers := c.now, slices.Clone(c.followers)
	c.mu.Unlock()
	for _, f := range followers {
		f(now)
	}
}

// Pending returns how many timers are waiting, so that a test can tell when the code
// under test has begun to wait.
func (c *Clock) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}
