// Package ferret runs an embedded FerretDB, a server that speaks MongoDB's protocol
// over SQLite, inside a test or a small program. Nothing needs to be installed and
// nothing leaves the machine.
//
// FerretDB 1.24 has unique indexes, majority write concern and hello.localTime. It
// has no TTL indexes, $expr comparisons or pipeline updates, and its findAndModify
// reads and then writes: races between two of them cannot be judged on it.
package ferret

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// Server is a running FerretDB. Its data ends with it.
type Server struct {
	address string
	dir     string
	cancel  context.CancelFunc
	ended   chan struct{}
}

// StartFerretDB starts a server for one test, which ends with the test, and returns
// its URI.
func StartFerretDB(t testing.TB) (uri string) {
	t.Helper()
	s, err := Start()
	if err != nil {
		t.Fatalf("starting FerretDB: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stopping FerretDB: %v", err)
		}
	})
	return s.URI()
}

// Start starts a server on a free port of the loopback address, with an empty
// database in a temporary directory. It returns once the server accepts connections,
// within 10 seconds.
func Start() (*Server, error) {
	dir, err := os.MkdirTemp("", "coord-ferretdb-")
	if err != nil {
		return nil, err
	}
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
		Handler:   "sqlite",
		SQLiteURL: "file:" + dir + "/",
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{dir: dir, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = db.Run(ctx)
	}()
	// The address is known only to a running server: MongoDBURI waits for it.
	known := make(chan string, 1)
	go func() { known <- db.MongoDBURI() }()
	select {
	case s.address = <-known:
	case <-s.ended:
		return nil, errors.Join(errors.New("FerretDB ended while it started"), s.Stop())
	case <-time.After(10 * time.Second):
		return nil, errors.Join(errors.New("FerretDB did not start within 10 s"), s.Stop())
	}
	return s, nil
}

// URI is where the server listens: mongodb://127.0.0.1:<port>/.
func (s *Server) URI() string { return s.address }

// Stop ends the server, waits until it has, and removes its data.
func (s *Server) Stop() error {
	s.cancel()
	<-s.ended
	return os.RemoveAll(s.dir)
}
