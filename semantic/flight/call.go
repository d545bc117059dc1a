package flight

import (
	"context"
	"fmt"
	"runtime/debug"
)

// PanicError is a function that did not return: it panicked or ended its goroutine.
type PanicError struct {
	Value any    // what it panicked with; nil for runtime.Goexit
	Stack string // where; empty for runtime.Goexit
}

// Error says which of the two happened, without the stack.
func (e *PanicError) Error() string {
	if e.Stack == "" {
		return "function called runtime.Goexit"
	}
	return fmt.Sprintf("function panicked: %v", e.Value)
}

// Unwrap gives the error that was panicked with, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Call runs fn and returns its results, or a *PanicError if it does not return. It
// blocks until fn has ended.
func Call[R any](ctx context.Context, fn func(context.Context) (R, error)) (R, error) {
	var (
		result R
		err    error = &PanicError{}
	)
	done := make(chan struct{})
	// A goroutine of its own, because only that survives a Goexit.
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = &PanicError{Value: p, Stack: string(debug.Stack())}
			}
		}()
		result, err = fn(ctx)
	}()
	<-done
	return result, err
}
