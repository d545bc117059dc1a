package conn

import (
	"bufio"
	"encoding"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	// maxSmall bounds a string and the length of an array in the reply to a small request.
	maxSmall = 1 << 20
	// maxDepth bounds how deep its arrays are nested.
	maxDepth = 8
)

var errProtocol = errors.New("the server's reply is not what the protocol allows here")

// serverError is an error that the server replied.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements [redis.Error].
func (serverError) RedisError() {}

// appendRequest appends a request as the protocol has it: an array of strings.
// https://redis.io/docs/latest/develop/reference/protocol-spec
func appendRequest(b []byte, args []any) ([]byte, error) {
	b = appendCount(b, '*', len(args))
	for _, arg := range args {
		switch v := arg.(type) {
		case string:
			b = appendText(b, v)
		case *string:
			b = appendText(b, *v)
		case []byte:
			b = appendText(b, v)
		case int:
			b = appendNumber(b, int64(v))
		case int64:
			b = appendNumber(b, v)
		case *int64:
			b = appendNumber(b, *v)
		case encoding.BinaryMarshaler: // of a script's call
			text, err := v.MarshalBinary()
			if err != nil {
				return b, err
			}
			b = appendText(b, text)
		default:
			return b, fmt.Errorf("argument of type %T cannot be sent", arg)
		}
	}
	return b, nil
}

func appendCount(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(append(appendCount(b, '$', len(s)), s...), '\r', '\n')
}

func appendNumber(b []byte, n int64) []byte {
	var digits [20]byte
	return appendText(b, strconv.AppendInt(digits[:0], n, 10))
}

// readReply reads one reply of either version of the protocol: nil, int64, string, []any,
// or a serverError as the error. After any other error the connection is of no use.
func readReply(in *bufio.Reader, depth int) (any, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, errProtocol
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return string(rest), nil
	case '-':
		return nil, serverError(rest)
	case '_':
		return nil, nil
	}
	n, err := strconv.ParseInt(string(rest), 10, 64)
	switch {
	case err != nil:
		return nil, errProtocol
	case kind == ':':
		return n, nil
	case n == -1 && (kind == '$' || kind == '*'):
		return nil, nil
	case n < 0 || n > maxSmall:
		return nil, errProtocol
	case kind == '$':
		return readText(in, int(n))
	case kind == '*' && depth < maxDepth:
		return readArray(in, int(n), depth+1)
	}
	return nil, errProtocol
}

func readText(in *bufio.Reader, n int) (any, error) {
	text := make([]byte, n+2)
	if _, err := io.ReadFull(in, text); err != nil {
		return nil, err
	}
	if text[n] != '\r' || text[n+1] != '\n' {
		return nil, errProtocol
	}
	return string(text[:n]), nil
}

func readArray(in *bufio.Reader, n, depth int) (any, error) {
	all := make([]any, 0, min(n, 16))
	for range n {
		v, err := readReply(in, depth)
		if err != nil {
			var reply serverError
			if errors.As(err, &reply) {
				err = errProtocol // no script gives one, and the rest would stay unread
			}
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}
