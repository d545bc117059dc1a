package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// provider is the world outside: it takes payments under stable idempotency keys, and
// subscribes to events. It is a process of its own, which outlives the sales.
type provider struct {
	mu      sync.Mutex
	charges map[string]charge // by idempotency key
	events  map[string]int    // deliveries, by event id
}

type charge struct {
	ID          string
	Account     string
	AmountMinor int64
}

// outside is what the provider tells about one account and one seat.
type outside struct {
	Charges    int // of the account
	Events     int // distinct ones about the seat
	Deliveries int // of them, repetitions included
}

// runProvider serves until its standard input ends, which is when its parent does.
func runProvider() error {
	p := &provider{charges: map[string]charge{}, events: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges/{key}", p.charge)
	mux.HandleFunc("GET /charges/{key}", p.lookup)
	mux.HandleFunc("POST /events/{id}", p.deliver)
	mux.HandleFunc("GET /census", p.census)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	fmt.Println("http://" + l.Addr().String())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	var asked charge
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := r.PathValue("key")
	p.mu.Lock()
	defer p.mu.Unlock()
	c, known := p.charges[key]
	switch {
	case !known:
		c = asked
		c.ID = fmt.Sprintf("ch_%d", len(p.charges)+1)
		p.charges[key] = c
	case c.Account != asked.Account || c.AmountMinor != asked.AmountMinor:
		http.Error(w, "idempotency key was used for another charge", http.StatusConflict)
		return
	}
	_ = json.NewEncoder(w).Encode(c)
}

func (p *provider) lookup(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, known := p.charges[r.PathValue("key")]
	if !known {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(c)
}

func (p *provider) deliver(_ http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events[r.PathValue("id")]++
}

func (p *provider) census(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var o outside
	for _, c := range p.charges {
		if strings.HasPrefix(c.Account, r.FormValue("account")) {
			o.Charges++
		}
	}
	for id, n := range p.events {
		if strings.Contains(id, r.FormValue("event")) {
			o.Events++
			o.Deliveries += n
		}
	}
	_ = json.NewEncoder(w).Encode(o)
}

// providerClient is the provider as a sale sees it.
type providerClient struct {
	url string
	at  hook
}

// lookup asks what became of a charge; nil if the provider has never seen its key.
func (p providerClient) lookup(ctx context.Context, key string) (*charge, error) {
	return p.call(ctx, http.MethodGet, "/charges/"+key, nil)
}

// pay charges once per key, however often it is called.
func (p providerClient) pay(ctx context.Context, key, account string, amount int64) (*charge, error) {
	return p.call(ctx, http.MethodPost, "/charges/"+key, charge{Account: account, AmountMinor: amount})
}

func (p providerClient) publish(ctx context.Context, e Event) error {
	_, err := p.call(ctx, http.MethodPost, "/events/"+e.ID, e)
	return err
}

func (p providerClient) call(ctx context.Context, method, path string, body any) (*charge, error) {
	var answer charge
	found, err := p.exchange(ctx, method, path, body, &answer)
	if err != nil || !found {
		return nil, err
	}
	return &answer, nil
}

func (p providerClient) exchange(ctx context.Context, method, path string, body, answer any) (found bool, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(raw))
	if err != nil {
		return false, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, fmt.Errorf("provider: %w", err)
	}
	defer response.Body.Close()
	if strings.HasPrefix(path, "/charges/") && response.StatusCode == http.StatusOK {
		p.at(pointChargeSent) // on paying, and on asking what became of it
	}
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return false, fmt.Errorf("provider: %w", err)
	case response.StatusCode == http.StatusNotFound:
		return false, nil
	case response.StatusCode != http.StatusOK:
		return false, fmt.Errorf("provider: %s: %s", response.Status, bytes.TrimSpace(text))
	case len(text) == 0:
		return true, nil
	}
	return true, json.Unmarshal(text, answer)
}

// startProvider runs the provider as a child process and returns its address.
func startProvider() (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, "-role", "provider")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("provider does not start: %w", err)
	}
	return strings.TrimSpace(line), stop, nil
}
