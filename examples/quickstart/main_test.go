package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lastLine runs the program and returns the last line it prints.
func lastLine(t *testing.T, args ...string) (line, out string, err error) {
	t.Helper()
	f, err := parseFlags(append(args, "-timeout", "2m", "-out", filepath.Join(t.TempDir(), "out.txt")))
	if err != nil {
		return "", "", err
	}
	var printed bytes.Buffer
	err = run(context.Background(), f, &printed)
	digests, _ := os.ReadFile(f.out)
	lines := strings.Split(strings.TrimSpace(printed.String()), "\n")
	t.Log(printed.String())
	return lines[len(lines)-1], string(digests), err
}

func TestTheShippedRecordsAreEachHandledOnce(t *testing.T) {
	line, digests, err := lastLine(t)
	if err != nil || line != "records=1000 enqueued=960 processed=960 twice=0 malformed=3 gated=6 failed=0" {
		t.Errorf("%q, %v", line, err)
	}
	if n := strings.Count(digests, "\n"); n != 960 {
		t.Errorf("%d digests, want 960", n)
	}
}

func TestTheFiguresAddUpWhenTheScanningReplicaDies(t *testing.T) {
	line, _, err := lastLine(t, "-kill")
	if err != nil || !strings.HasPrefix(line, "records=1000 enqueued=960 processed=960 twice=0 malformed=3 gated=") || !strings.HasSuffix(line, " failed=0") {
		t.Errorf("%q, %v", line, err)
	}
}

func TestBadInputIsRefusedByName(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-records", filepath.Join(t.TempDir(), "missing.jsonl")},
		{"-records", t.TempDir()},
		{"-records", empty},
	} {
		if _, _, err := lastLine(t, args...); err == nil || !strings.Contains(err.Error(), args[1]) {
			t.Errorf("%v: %v, want an error that names the file", args, err)
		}
	}
	if _, err := parseFlags([]string{"records.jsonl"}); err == nil {
		t.Error("an argument without a flag is accepted")
	}
}

// TestALineTooLongForAMessageIsMalformed: it is counted and left out like any other
// malformed line, and the records after it are read.
func TestALineTooLongForAMessageIsMalformed(t *testing.T) {
	record := func(id string) string {
		return `{"organization_id":"o","attachment_id":"` + id + `","version":1,"status":"pending"}` + "\n"
	}
	path := filepath.Join(t.TempDir(), "long.jsonl")
	if err := os.WriteFile(path, []byte(record("a")+record(strings.Repeat("x", 3*longestLine))+record("b")), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &recordFile{path: path}
	if err := f.census(); err != nil || f.records != 2 || f.distinct != 2 || f.malformed != 1 {
		t.Errorf("census: %+v, %v, want 2 records and 1 malformed line", f, err)
	}
}
