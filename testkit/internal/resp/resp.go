// Package resp reads and writes the Redis wire protocol, versions 2 and 3, as far as
// a test server's client and a fault proxy need it.
package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ErrProtocol means that the bytes are not the Redis protocol.
var ErrProtocol = errors.New("not the redis protocol")

// maxBulk is the longest string that is read, as in the server.
const maxBulk = 512 << 20

// Error is an error reply; its first word is the code.
type Error string

func (e Error) Error() string { return string(e) }

// AppendCommand appends a command in the form servers read.
func AppendCommand(b []byte, args ...string) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(args)), 10)
	b = append(b, '\r', '\n')
	for _, a := range args {
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(a)), 10)
		b = append(b, '\r', '\n')
		b = append(b, a...)
		b = append(b, '\r', '\n')
	}
	return b
}

// Message is one reply or command.
type Message struct {
	Kind  byte   // its first byte on the wire
	Raw   []byte // all of its bytes
	Value any    // nil, string, int64, bool, Error or []any; maps are flat lists
}

// Push tells whether the message was not asked for.
func (m Message) Push() bool { return m.Kind == '>' }

// Args returns a command's words, nil if the message is not one.
func (m Message) Args() []string {
	list, ok := m.Value.([]any)
	if !ok || m.Kind != '*' {
		return nil
	}
	args := make([]string, 0, len(list))
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil
		}
		args = append(args, s)
	}
	return args
}

// Read reads one message.
func Read(r *bufio.Reader) (Message, error) {
	var m Message
	v, err := m.read(r, 0)
	if err != nil {
		return m, err
	}
	m.Kind, m.Value = m.Raw[0], v
	if m.Kind == '|' { // attributes come before the reply they belong to
		rest, err := Read(r)
		rest.Raw = append(m.Raw, rest.Raw...)
		return rest, err
	}
	return m, nil
}

func (m *Message) read(r *bufio.Reader, depth int) (any, error) {
	if depth > 64 {
		return nil, fmt.Errorf("%w: nested too deep", ErrProtocol)
	}
	line, err := m.line(r)
	if err != nil {
		return nil, err
	}
	if len(line) == 0 {
		return nil, fmt.Errorf("%w: empty line", ErrProtocol)
	}
	kind, rest := line[0], string(line[1:])
	switch kind {
	case '+', ',', '(':
		return rest, nil
	case '-':
		return Error(rest), nil
	case ':':
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: integer %q", ErrProtocol, rest)
		}
		return n, nil
	case '_':
		return nil, nil
	case '#':
		return rest == "t", nil
	case '$', '=', '!':
		return m.bulk(r, kind, rest)
	case '*', '~', '>', '%', '|':
		n, err := strconv.Atoi(rest)
		if err != nil || n > maxBulk {
			return nil, fmt.Errorf("%w: length %q", ErrProtocol, rest)
		}
		if n < 0 {
			return nil, nil
		}
		if kind == '%' || kind == '|' {
			n *= 2
		}
		list := make([]any, 0, min(n, 1024))
		for range n {
			v, err := m.read(r, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	return nil, fmt.Errorf("%w: first byte %q", ErrProtocol, kind)
}

func (m *Message) bulk(r *bufio.Reader, kind byte, length string) (any, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n > maxBulk {
		return nil, fmt.Errorf("%w: length %q", ErrProtocol, length)
	}
	if n < 0 {
		return nil, nil
	}
	start := len(m.Raw)
	for left := n + 2; left > 0; { // memory grows with what comes, not with what is announced
		part := min(left, 64<<10)
		at := len(m.Raw)
		m.Raw = append(m.Raw, make([]byte, part)...)
		if _, err := io.ReadFull(r, m.Raw[at:]); err != nil {
			return nil, err
		}
		left -= part
	}
	s := string(m.Raw[start : start+n])
	switch {
	case kind == '!':
		return Error(s), nil
	case kind == '=' && len(s) > 4:
		return s[4:], nil // after "txt:"
	}
	return s, nil
}

// line reads up to a line's end, which it leaves out of the result.
func (m *Message) line(r *bufio.Reader) ([]byte, error) {
	start := len(m.Raw)
	for {
		part, err := r.ReadSlice('\n')
		m.Raw = append(m.Raw, part...)
		if errors.Is(err, bufio.ErrBufferFull) && len(m.Raw)-start < maxBulk {
			continue
		}
		if err != nil {
			return nil, err
		}
		break
	}
	line := m.Raw[start : len(m.Raw)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}
