package cronfx

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/wrkbelt/coord/semantic"
)

// PanicError is the panic of a handler or a scan, as the error of its run.
type PanicError struct {
	Value any
	Stack []byte
}

// Error tells the panic's value; the stack is in the field.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// invoke calls the handler, or queues what the scan yields. A panic becomes an error.
func (s *session) invoke(ctx context.Context, j *job, t Tick) (report *semantic.FanoutReport, err error) {
	defer recovered(&err)
	if !j.isFanout() {
		return nil, j.run(ctx, t)
	}
	sent, err := s.r.enqueue(ctx, j, j.scan(ctx, t))
	return &sent, err
}

// enqueue streams records into the queue. A record that was not queued makes it fail:
// the job's next scan finds the record again.
func (r *Runner) enqueue(ctx context.Context, j *job, records semantic.Records) (semantic.FanoutReport, error) {
	report, err := r.fanout.Enqueue(ctx, j.domain, isolated(records))
	if err == nil && report.Failed > 0 {
		err = fmt.Errorf("%d of %d records were not queued", report.Failed, report.Scanned)
		if len(report.Failures) > 0 {
			err = fmt.Errorf("%w, the first because %s: %w", err, report.Failures[0].Code, report.Failures[0].Err)
		}
	}
	return report, err
}

// isolated turns a panic of records into its last error: the queue may read it on
// a goroutine of its own, where a panic would end the process.
func isolated(records semantic.Records) semantic.Records {
	if records == nil {
		return func(func(semantic.FanoutRecord, error) bool) {}
	}
	return func(yield func(semantic.FanoutRecord, error) bool) {
		inside, more := false, true // inside: the reader's code runs, whose panic is not ours
		err := func() (err error) {
			defer func() {
				if inside {
					return
				}
				if v := recover(); v != nil {
					err = &PanicError{Value: v, Stack: debug.Stack()}
				}
			}()
			records(func(record semantic.FanoutRecord, err error) bool {
				inside = true
				more = yield(record, err)
				inside = false
				return more
			})
			return nil
		}()
		if err != nil && more {
			yield(semantic.FanoutRecord{}, err)
		}
	}
}

// recovered turns a panic into err; it must itself be the deferred call.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
