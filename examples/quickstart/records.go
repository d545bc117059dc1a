package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"os"

	"github.com/wrkbelt/coord/semantic"
)

//go:embed records.jsonl
var shipped []byte

// recordFile is the table of attachments: a JSONL file that is read anew by every scan,
// one line in memory at a time.
type recordFile struct {
	path string

	// What the first reading found.
	records   int // valid lines, repeated ones included
	distinct  int // different attachments
	malformed int
}

type attachment struct {
	OrganizationID string `json:"organization_id"`
	AttachmentID   string `json:"attachment_id"`
	Version        int    `json:"version"`
	Status         string `json:"status"`
}

// identity is what tells one attachment from another.
func (a attachment) identity() string { return a.OrganizationID + "/" + a.AttachmentID }

// openRecords makes the file at path readable more than once ("" is the shipped one, "-"
// standard input) and takes a census of it. cleanup removes what it had to copy.
func openRecords(path string) (f *recordFile, cleanup func(), err error) {
	cleanup = func() {}
	switch path {
	case "", "-":
		var from io.Reader = os.Stdin
		if path == "" {
			from = bytes.NewReader(shipped)
		}
		if path, err = spool(from); err != nil {
			return nil, nil, err
		}
		cleanup = func() { _ = os.Remove(path) }
	}
	f = &recordFile{path: path}
	if err := f.census(); err != nil {
		cleanup()
		return nil, nil, err
	}
	return f, cleanup, nil
}

func spool(from io.Reader) (path string, err error) {
	tmp, err := os.CreateTemp("", "quickstart-*.jsonl")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(tmp, from)
	if err = errors.Join(err, tmp.Close()); err != nil {
		_ = os.Remove(tmp.Name())
		return "", fmt.Errorf("reading records: %w", err)
	}
	return tmp.Name(), nil
}

func (f *recordFile) census() error {
	seed := maphash.MakeSeed()
	seen := map[uint64]struct{}{}
	for line, err := range f.lines() {
		if err != nil {
			return err
		}
		a, err := parse(line)
		if err != nil {
			f.malformed++
			continue
		}
		f.records++
		seen[maphash.String(seed, a.identity())] = struct{}{}
	}
	f.distinct = len(seen)
	if f.records == 0 {
		return fmt.Errorf("%s: no valid record in it", f.path)
	}
	return nil
}

// longestLine is what one message can hold; a longer line is malformed.
const longestLine = 1 << 20

var overlong = []byte("a line of more than 1 MiB")

// lines yields the file's lines that are not empty.
func (f *recordFile) lines() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		file, err := os.Open(f.path)
		if err != nil {
			yield(nil, fmt.Errorf("opening records: %w", err))
			return
		}
		defer file.Close()
		reader := bufio.NewReaderSize(file, longestLine)
		for {
			line, err := reader.ReadSlice('\n')
			rest := err
			for errors.Is(rest, bufio.ErrBufferFull) {
				_, rest = reader.ReadSlice('\n')
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				line = overlong
			}
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(line, nil) {
				return
			}
			if errors.Is(rest, io.EOF) {
				return
			}
			if rest != nil {
				yield(nil, fmt.Errorf("reading records: %w", rest))
				return
			}
		}
	}
}

func parse(line []byte) (attachment, error) {
	var a attachment
	if err := json.Unmarshal(line, &a); err != nil {
		return a, err
	}
	if a.OrganizationID == "" || a.AttachmentID == "" {
		return a, errors.New("organization_id or attachment_id is missing")
	}
	return a, nil
}

// pending streams the attachments that are not handled yet, and marks malformed lines
// as skipped. It calls next before each line and ends with its error.
func (f *recordFile) pending(ctx context.Context, handled func(identity string) bool, next func() error) semantic.Records {
	return func(yield func(semantic.FanoutRecord, error) bool) {
		number := 0
		for line, err := range f.lines() {
			number++
			if err == nil {
				err = errors.Join(ctx.Err(), next())
			}
			if err != nil {
				yield(semantic.FanoutRecord{}, err)
				return
			}
			a, err := parse(line)
			var ok bool
			switch {
			case err != nil:
				ok = yield(semantic.FanoutRecord{}, semantic.SkipRecord(fmt.Errorf("line %d: %w", number, err)))
			case a.Status != "pending" || handled(a.identity()):
				ok = true
			default:
				ok = yield(semantic.FanoutRecord{
					OrganizationID: a.OrganizationID,
					RecordID:       a.AttachmentID,
					Version:        fmt.Sprint(a.Version),
					Body:           append([]byte(nil), line...),
				}, nil)
			}
			if !ok {
				return
			}
		}
	}
}
