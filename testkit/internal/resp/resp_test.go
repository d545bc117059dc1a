package resp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestReadsEveryKindOfMessage(t *testing.T) {
	for _, c := range []struct {
		wire string
		want any
	}{
		{"+OK\r\n", "OK"},
		{"-ERR no\r\n", Error("ERR no")},
		{":-7\r\n", int64(-7)},
		{"$3\r\na\r\n\r\n", "a\r\n"},
		{"$0\r\n\r\n", ""},
		{"$-1\r\n", nil},
		{"*-1\r\n", nil},
		{"*0\r\n", []any{}},
		{"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", []any{"a", []any{int64(1)}}},
		{"_\r\n", nil},
		{"#t\r\n", true},
		{"#f\r\n", false},
		{",1.5\r\n", "1.5"},
		{"(123\r\n", "123"},
		{"!6\r\nERR no\r\n", Error("ERR no")},
		{"=5\r\ntxt:a\r\n", "a"},
		{"%1\r\n+k\r\n:1\r\n", []any{"k", int64(1)}},
		{"~1\r\n:1\r\n", []any{int64(1)}},
		{">1\r\n+x\r\n", []any{"x"}},
		{"|1\r\n+k\r\n+v\r\n:1\r\n", int64(1)},
		{"+" + strings.Repeat("x", 10_000) + "\r\n", strings.Repeat("x", 10_000)},
	} {
		m, err := Read(bufio.NewReader(strings.NewReader(c.wire + "rest")))
		if err != nil || !reflect.DeepEqual(m.Value, c.want) || string(m.Raw) != c.wire {
			t.Errorf("%.40q: value %v, raw %.40q, %v; want %v", c.wire, m.Value, m.Raw, err, c.want)
		}
	}
}

func TestCommandsComeBackAsTheirWords(t *testing.T) {
	words := []string{"SET", "", "a b\r\n", "\x00\xff"}
	m, err := Read(bufio.NewReader(bytes.NewReader(AppendCommand(nil, words...))))
	if err != nil || !reflect.DeepEqual(m.Args(), words) {
		t.Errorf("got %q, %v", m.Args(), err)
	}
	for _, wire := range []string{"+PING\r\n", "*1\r\n:1\r\n", ">1\r\n+x\r\n"} {
		if m, err := Read(bufio.NewReader(strings.NewReader(wire))); err != nil || m.Args() != nil {
			t.Errorf("%q is taken for the command %q (%v)", wire, m.Args(), err)
		}
	}
}

func TestRefusesWhatIsNotTheProtocol(t *testing.T) {
	for _, wire := range []string{
		"GET / HTTP/1.1\r\n", "\r\n", "$x\r\n", ":x\r\n", "*x\r\n", "$99999999999\r\n", strings.Repeat("*1\r\n", 100),
	} {
		if _, err := Read(bufio.NewReader(strings.NewReader(wire))); !errors.Is(err, ErrProtocol) {
			t.Errorf("%.20q: %v, want ErrProtocol", wire, err)
		}
	}
	for _, wire := range []string{"", "+OK", "$3\r\nab", "*2\r\n:1\r\n"} {
		if _, err := Read(bufio.NewReader(strings.NewReader(wire))); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v, want the end of the input", wire, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n+k\r\n_\r\n", "|1\r\n+k\r\n+v\r\n$-1\r\n", "$3\r\nab"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		m, err := Read(bufio.NewReader(bytes.NewReader(wire)))
		if err == nil && !bytes.HasPrefix(wire, m.Raw) {
			t.Errorf("raw %q is not what was read of %q", m.Raw, wire)
		}
	})
}
