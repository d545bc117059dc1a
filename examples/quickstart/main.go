package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

type flags struct {
	records, out string
	kill         bool
	timeout      time.Duration
	memory       bool
}

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.StringVar(&f.records, "records", "", "JSONL `file` of attachments, - for standard input (default the shipped one of 1,000)")
	set.StringVar(&f.out, "out", "", "`file` for the digests of the handled records (default a temporary one)")
	set.BoolVar(&f.kill, "kill", false, "let the replica that scans die in the middle of it")
	set.DurationVar(&f.timeout, "timeout", 5*time.Minute, "give up after this time")
	set.BoolVar(&f.memory, "memory", false, "show the largest heap that was seen")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q: every input has a flag, see -help", set.Arg(0))
	}
	return f, nil
}

const replicas = 3

// run starts the replicas, waits until every record is handled and the ticks are shown,
// stops the replicas and checks the figures.
func run(ctx context.Context, f flags, stdout io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("not done within %v", f.timeout))
	defer cancel()
	records, cleanup, err := openRecords(f.records)
	if err != nil {
		return err
	}
	defer cleanup()
	ledger, err := openLedger(f.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	backends, err := openBackends(ctx)
	if err != nil {
		return err
	}
	defer backends.close()

	out := &lockedWriter{w: stdout}
	s := &service{
		domain: "media-" + rand.Text()[:8], records: records, ledger: ledger,
		board: newTickBoard(out), queued: &idSet{ids: map[string]struct{}{}},
	}
	if f.kill {
		s.killAfter = int64(records.records+records.malformed)/2 + 1
	}
	fmt.Fprintf(out, "%d replicas on %s; %d records, digests go to %s\n", replicas, backends.names, records.records, ledger.out.Name())

	heap := &peak{}
	var all []*replica
	for i := range replicas {
		r := newReplica(s, backends, fmt.Sprint("replica-", i+1))
		if err := r.app.Start(ctx); err != nil {
			_ = stopAll(append(all, r))
			return fmt.Errorf("%s does not start: %w", r.name, err)
		}
		all = append(all, r)
	}
	s.board.begin()
	waited := waitUntilDone(ctx, s, out, heap)
	stopped := stopAll(all)
	if f.memory {
		fmt.Fprintf(out, "largest heap seen: %.1f MiB\n", float64(heap.bytes)/(1<<20))
	}
	return errors.Join(waited, stopped, s.verdict(out))
}

// waitUntilDone returns when the ticks are shown and every record is handled.
func waitUntilDone(ctx context.Context, s *service, out io.Writer, heap *peak) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	shown, next := -1, time.Now()
	announced := false
	for {
		heap.sample()
		alive := replicas
		if dead := s.killed.Load(); dead != nil {
			alive--
			if !announced {
				announced = true
				fmt.Fprintf(out, "%s was killed in the middle of its scan\n", dead.name)
			}
		}
		processed, _ := s.ledger.counts()
		if processed != shown && (time.Now().After(next) || processed == s.records.distinct) {
			fmt.Fprintf(out, "handled %d of %d\n", processed, s.records.distinct)
			shown, next = processed, time.Now().Add(500*time.Millisecond)
		}
		if processed >= s.records.distinct && s.board.complete(alive) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		case <-s.board.changed:
		}
	}
}

// stopAll stops the replicas; of a killed one nothing is expected any more.
func stopAll(all []*replica) error {
	var mu sync.Mutex
	var errs []error
	var stops sync.WaitGroup
	for _, r := range all {
		stops.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			if err := r.app.Stop(ctx); err != nil && !r.net.dead() {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("%s does not stop: %w", r.name, err))
			}
		})
	}
	stops.Wait()
	return errors.Join(errs...)
}

// verdict prints the figures and returns what does not add up.
func (s *service) verdict(out io.Writer) error {
	processed, twice := s.ledger.counts()
	gated, failed, err := s.board.figures()
	enqueued := s.queued.size()
	fmt.Fprintf(out, "records=%d enqueued=%d processed=%d twice=%d malformed=%d gated=%d failed=%d\n",
		s.records.records, enqueued, processed, twice, s.records.malformed, gated, failed)
	if enqueued != s.records.distinct || processed != s.records.distinct || twice > 0 || failed > 0 {
		err = errors.Join(err, fmt.Errorf("the figures do not add up: %d different records, want each of them enqueued and processed once", s.records.distinct))
	}
	return err
}

// peak remembers the largest heap that was seen.
type peak struct{ bytes uint64 }

func (p *peak) sample() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p.bytes = max(p.bytes, m.HeapAlloc)
}

// lockedWriter lets the replicas print whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// stderr is standard error as a zap sink.
type stderr struct{}

func (stderr) Write(p []byte) (int, error) { return os.Stderr.Write(p) }
func (stderr) Sync() error                 { return nil }
