package conn

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/redis/go-redis/v9"
)

func read(wire string) (any, error) { return readReply(bufio.NewReader(strings.NewReader(wire)), 0) }

func TestARequestIsAnArrayOfStrings(t *testing.T) {
	text, number := "härte\r\n", int64(-9223372036854775808)
	b, err := appendRequest([]byte("*1\r\n$4\r\nPING\r\n"), []any{"SET", &text, []byte{0, 1}, 7, int64(8), &number, ""})
	want := "*1\r\n$4\r\nPING\r\n*7\r\n$3\r\nSET\r\n$8\r\nhärte\r\n\r\n$2\r\n\x00\x01\r\n$1\r\n7\r\n$1\r\n8\r\n" +
		"$20\r\n-9223372036854775808\r\n$0\r\n\r\n"
	if err != nil || string(b) != want {
		t.Errorf("%q, %v, want %q", b, err, want)
	}
	if _, err := appendRequest(nil, []any{"SET", 1.5}); err == nil || !strings.Contains(err.Error(), "float64") {
		t.Errorf("%v, want the type refused", err)
	}
}

func TestARepliedValueIsRead(t *testing.T) {
	for wire, want := range map[string]any{
		"+OK\r\n":                              "OK",
		"+\r\n":                                "",
		":-42\r\n":                             int64(-42),
		":9223372036854775807\r\n":             int64(9223372036854775807),
		"$0\r\n\r\n":                           "",
		"$4\r\na\r\nb\r\n":                     "a\r\nb",
		"$-1\r\n":                              nil,
		"*-1\r\n":                              nil,
		"_\r\n":                                nil,
		"*0\r\n":                               []any{},
		"*3\r\n:1\r\n*2\r\n$-1\r\n+a\r\n_\r\n": []any{int64(1), []any{nil, "a"}, nil},
		"$" + "5000\r\n" + strings.Repeat("x", 5000) + "\r\n": strings.Repeat("x", 5000),
	} {
		if got, err := read(wire); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%.30q: %#v, %v, want %#v", wire, got, err, want)
		}
		if got, err := readReply(bufio.NewReader(iotest.OneByteReader(strings.NewReader(wire))), 0); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%.30q in pieces: %#v, %v, want %#v", wire, got, err, want)
		}
		// What ends early is no value.
		for i := range min(len(wire), 40) {
			if got, err := read(wire[:i]); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q: %#v, %v, want the end of the input", wire[:i], got, err)
			}
		}
	}
}

func TestARepliedErrorIsOneOfTheLibrary(t *testing.T) {
	_, err := read("-READONLY You can't write against a read only replica.\r\n")
	var reply redis.Error
	if !errors.As(err, &reply) || err.Error() != "READONLY You can't write against a read only replica." || !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("%#v", err)
	}
}

func TestWhatIsNoReplyIsRefused(t *testing.T) {
	for _, wire := range []string{
		"\r\n", "+OK\n", "\n", ":\r\n", ":x\r\n", ":9223372036854775808\r\n", "$x\r\n", "$-2\r\n", "*-2\r\n", "$1048577\r\n",
		"*1048577\r\n", "$2\r\nabc\r\n", "$2\r\nab\n\n", "HTTP/1.1 400 Bad Request\r\n", ">2\r\n+a\r\n+b\r\n", "%1\r\n+a\r\n:1\r\n",
		"*2\r\n:1\r\n-ERR inside\r\n", strings.Repeat("*1\r\n", maxDepth+1) + ":1\r\n",
	} {
		if got, err := read(wire); !errors.Is(err, errProtocol) {
			t.Errorf("%q: %#v, %v, want %v", wire, got, err, errProtocol)
		}
	}
	if got, err := read("-" + strings.Repeat("x", 1<<20) + "\r\n"); err == nil || errors.As(err, new(redis.Error)) {
		t.Errorf("an endless line: %#v, %v", got, err)
	}
}

// A length that the server only promises takes no memory of its size.
func TestAPromisedArrayTakesNoMemory(t *testing.T) {
	var err error
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, err = read(strings.Repeat("*1048576\r\n", maxDepth))
		}
	}).AllocedBytesPerOp()
	if !errors.Is(err, io.EOF) || allocated > 1<<16 {
		t.Errorf("%v, %d bytes", err, allocated)
	}
}

func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "-ERR x\r\n", ":1\r\n", "$3\r\nabc\r\n", "*2\r\n:1\r\n$-1\r\n", "_\r\n", "*1\r\n*1\r\n+a\r\n", "%1\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		rest := bytes.NewReader(wire)
		in := bufio.NewReader(rest)
		v, err := readReply(in, 0)
		if err != nil {
			return
		}
		// What was read is what the same value is written as, but for the kind of string,
		// of nil, and for the zeros and the sign of a number.
		used := len(wire) - rest.Len() - in.Buffered()
		again, err := readReply(bufio.NewReader(bytes.NewReader(appendReply(nil, v))), 0)
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("%q: %#v, and again %#v, %v", wire[:used], v, again, err)
		}
		if used < 3 || !bytes.HasSuffix(wire[:used], []byte("\r\n")) {
			t.Errorf("%d bytes of %q were read", used, wire)
		}
	})
}

func appendReply(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "$-1\r\n"...)
	case int64:
		return appendCount(b, ':', int(v))
	case string:
		return appendText(b, v)
	}
	all := v.([]any)
	b = appendCount(b, '*', len(all))
	for _, v := range all {
		b = appendReply(b, v)
	}
	return b
}
