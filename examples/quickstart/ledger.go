package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/wrkbelt/coord/semantic"
)

// ledger is the service's durable state: which attachments were handled, and their
// digests in the output file. It counts what must never happen.
type ledger struct {
	mu        sync.Mutex
	out       *os.File
	temporary bool
	buffered  *bufio.Writer
	handled   map[string]int
	twice     int
}

func openLedger(path string) (*ledger, error) {
	var file *os.File
	var err error
	if path == "" {
		file, err = os.CreateTemp("", "quickstart-out-*.txt")
	} else {
		file, err = os.Create(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening output: %w", err)
	}
	return &ledger{out: file, temporary: path == "", buffered: bufio.NewWriter(file), handled: map[string]int{}}, nil
}

// handle is the side effect: one line with the digest of the record's payload.
func (l *ledger) handle(r semantic.FanoutRecord) error {
	digest := sha256.Sum256(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	identity := r.OrganizationID + "/" + r.RecordID
	if l.handled[identity]++; l.handled[identity] == 2 {
		l.twice++
	}
	_, err := fmt.Fprintf(l.buffered, "%s  %s\n", hex.EncodeToString(digest[:]), identity)
	return err
}

func (l *ledger) has(identity string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handled[identity] > 0
}

func (l *ledger) counts() (processed, twice int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.handled), l.twice
}

// close writes what is buffered. A run that handled nothing leaves no temporary file behind.
func (l *ledger) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.temporary && len(l.handled) == 0 {
		return errors.Join(l.out.Close(), os.Remove(l.out.Name()))
	}
	if err := l.buffered.Flush(); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	return l.out.Close()
}
