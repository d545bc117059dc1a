package semantic

import "time"

// Clock is the local clock that bounds how long a claim is trusted. Ownership
// itself is always decided by the backend's clock. Tests pass a controllable one.
type Clock interface {
	// Now returns the local time; the system clock's carries a monotonic reading.
	Now() time.Time
	// AfterFunc runs f on its own goroutine once d has passed, unless stop is
	// called first; stop tells whether it prevented the run.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Now returns time.Now().
func (SystemClock) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (SystemClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}
