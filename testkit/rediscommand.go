package testkit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/wrkbelt/coord/testkit/internal/resp"
)

// RedisError is an error reply of a server.
type RedisError struct{ Message string }

// Error returns the reply's text; its first word is the code.
func (e *RedisError) Error() string { return e.Message }

// redisCommand sends commands over one new connection and returns the last reply.
func redisCommand(ctx context.Context, addr, password string, commands ...[]any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()

	if password != "" {
		commands = append([][]any{{"AUTH", password}}, commands...)
	}
	var out []byte
	for _, args := range commands {
		words := make([]string, len(args))
		for i, a := range args {
			words[i] = fmt.Sprint(a)
		}
		out = resp.AppendCommand(out, words...)
	}
	if _, err := c.Write(out); err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	r := bufio.NewReader(c)
	var m resp.Message
	for range commands {
		if m, err = resp.Read(r); err != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
	if refusal, ok := m.Value.(resp.Error); ok {
		return nil, &RedisError{Message: string(refusal)}
	}
	return m.Value, nil
}

// finalError ends a poll.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(err error) error { return finalError{err} }

// poll tries until it succeeds, fails finally, or ctx ends.
func poll(ctx context.Context, try func() error) error {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := try()
		var last finalError
		if err == nil || errors.As(err, &last) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}

// lookUp finds a program outside a test.
func lookUp(name, install string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not on PATH; install it (%s): %w", name, install, err)
	}
	return path, nil
}

var majorForm = regexp.MustCompile(`v=(\d+)\.`)

// programMajor asks a redis-server or valkey-server for its major version.
func programMajor(ctx context.Context, program string) (int, error) {
	out, err := exec.CommandContext(ctx, program, "--version").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w", program, err)
	}
	m := majorForm.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s --version: no version in %q", program, out)
	}
	return strconv.Atoi(string(m[1]))
}

// quoted makes one word of a redis.conf value.
func quoted(value string) string { return strconv.Quote(value) }
