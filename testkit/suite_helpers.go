package testkit

import (
	"errors"
	"time"

	"github.com/wrkbelt/coord/semantic"
)

// wantArgument checks that err refuses the argument by name.
func wantArgument(t T, err error, argument string) {
	t.Helper()
	var a *semantic.ArgumentError
	if !errors.As(err, &a) || !errors.Is(err, semantic.ErrInvalidArgument) || a.Argument != argument || a.Allowed == "" {
		t.Errorf("error %v, want an ArgumentError for %q that says what is allowed", err, argument)
	}
}

// receive waits for what another goroutine of the case sends or closes.
func receive[V any](t T, c <-chan V, what string) V {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("waited 20 s for %s", what)
		panic("unreachable")
	}
}

// eventually polls until ok, for at most ten seconds.
func eventually(ok func() bool) bool {
	for range 1000 {
		if ok() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// waitUntilAsked gives a goroutine of the case the time to begin waiting. The cases
// hold whether or not it has; it only makes them test what they mean to.
func waitUntilAsked[S any](Backend[S]) { time.Sleep(50 * time.Millisecond) }
