package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/wrkbelt/coord/semantic/operation"
	"github.com/wrkbelt/coord/testkit"
)

// matrix runs sales as child processes and counts what they leave behind.
type matrix struct {
	config      saleConfig
	db          Durable
	coordinator operation.Coordinator
	provider    providerClient
	run         string // keeps this run's orders apart from those of others
	log         io.Writer
}

// row is one line of the table.
type row struct {
	what     string
	restarts int
	deaths   int
	census   Census
	outside  outside
	state    string
	wrong    []string // what does not hold
}

// openMatrix starts everything that outlives a sale.
func openMatrix(ctx context.Context, config saleConfig, log io.Writer) (m *matrix, stop func(), err error) {
	var stops []func()
	stopAll := func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	}
	defer func() {
		if err != nil {
			stopAll()
		}
	}()
	m = &matrix{config: config, run: strings.ToLower(rand.Text()[:6]), log: log}
	if config.redis == "" {
		url, end, err := startRedis(ctx)
		if err != nil {
			return nil, nil, err
		}
		stops = append(stops, end)
		m.config.redis = url
	}
	switch config.store {
	case "sqlite":
		dir, err := os.MkdirTemp("", "ticketing-")
		if err != nil {
			return nil, nil, err
		}
		stops = append(stops, func() { _ = os.RemoveAll(dir) })
		m.config.storeAddress = filepath.Join(dir, "tickets.db")
	case "memory":
		l, err := serveMemory()
		if err != nil {
			return nil, nil, err
		}
		stops = append(stops, func() { _ = l.Close() })
		m.config.storeAddress = l.Addr().String()
	}
	if m.db, err = openStore(ctx, config.store, m.config.storeAddress, dieAt("")); err != nil {
		return nil, nil, err
	}
	db := m.db // m is nil after an error
	stops = append(stops, func() { _ = db.Close() })
	operations, err := openOperations(ctx, m.config.redis)
	if err != nil {
		return nil, nil, err
	}
	stops = append(stops, func() { _ = operations.Close(context.WithoutCancel(ctx)) })
	m.coordinator = operations
	url, end, err := startProvider()
	if err != nil {
		return nil, nil, err
	}
	stops = append(stops, end)
	m.config.provider, m.provider = url, providerClient{url: url, at: dieAt("")}
	return m, stopAll, nil
}

// startRedis prefers a real server.
func startRedis(ctx context.Context) (url string, stop func(), err error) {
	if server, err := testkit.LaunchRedis(ctx, ""); err == nil {
		return server.URL(), server.Stop, nil
	}
	embedded, err := testkit.LaunchEmbeddedRedis()
	if err != nil {
		return "", nil, err
	}
	return embedded.URL(), embedded.Close, nil
}

// crash kills a sale at point, restarts it, kills it there again, and so on; the last
// restart is left alone.
func (m *matrix) crash(ctx context.Context, point string, restarts int) row {
	r := row{what: point, restarts: restarts}
	name := fmt.Sprintf("%s-%s-%d", m.run, point, restarts)
	request := m.request(name, "a")
	for range restarts {
		_, killed, err := m.sell(ctx, request, point)
		switch {
		case killed:
			r.deaths++
		case err != nil:
			r.wrong = append(r.wrong, fmt.Sprintf("sale: %v", err))
		}
	}
	order, killed, err := m.sell(ctx, request, "")
	if err != nil || killed || order.State != Sold {
		r.wrong = append(r.wrong, fmt.Sprintf("last restart: %q, killed %v, %v", order.State, killed, err))
	}
	if r.deaths != restarts {
		r.wrong = append(r.wrong, fmt.Sprintf("died %d times, not before each restart", r.deaths))
	}
	m.count(ctx, &r, name, request, 0)
	return r
}

// race lets n sales run at once: of one request, or of two requests for one seat.
func (m *matrix) race(ctx context.Context, what string, buyers ...string) row {
	r := row{what: what}
	name := fmt.Sprintf("%s-race-%d", m.run, len(buyers))
	var mu sync.Mutex
	var sold Request
	keys := map[string]bool{}
	var all sync.WaitGroup
	for _, buyer := range buyers {
		request := m.request(name, buyer)
		keys[request.Key] = true
		all.Go(func() {
			order, killed, err := m.sell(ctx, request, "")
			mu.Lock()
			defer mu.Unlock()
			if err != nil || killed {
				r.wrong = append(r.wrong, fmt.Sprintf("buyer %s: %v", buyer, err))
			}
			if order.State == Sold {
				sold = request
			}
		})
	}
	all.Wait()
	m.count(ctx, &r, name, sold, len(keys)-1)
	return r
}

func (m *matrix) request(name, buyer string) Request {
	return Request{Key: name + ":" + buyer, Buyer: "acct:" + name + ":" + buyer, Seat: "seat-" + name, AmountMinor: 4200}
}

// count looks at everything that outlived the sales.
func (m *matrix) count(ctx context.Context, r *row, name string, sold Request, declined int) {
	check := func(holds bool, format string, args ...any) {
		if !holds {
			r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
		}
	}
	var err error
	r.census, err = m.db.Census(ctx, "seat-"+name)
	check(err == nil, "census: %v", err)
	_, err = m.provider.exchange(ctx, "GET", "/census?account=acct:"+name+":&event="+name+":", nil, &r.outside)
	check(err == nil, "provider: %v", err)
	order, err := m.db.Order(ctx, orderID(sold.Key))
	check(err == nil && order.State == Sold, "order: %q, %v", order.State, err)
	if err == nil {
		id, err := identify(order)
		check(err == nil, "identity: %v", err)
		status, err := m.coordinator.ReadStatus(ctx, id)
		check(err == nil && status.Outcome == operation.StatusCompleted && status.ResultRef == order.ID, "status: %+v, %v", status, err)
		r.state = string(status.Outcome)
	}
	check(r.outside.Charges == 1, "%d charges", r.outside.Charges)
	check(r.census.Seats == 1 && r.census.Sold == 1, "%d seats, %d sold", r.census.Seats, r.census.Sold)
	check(r.census.Declined == declined, "%d declined, want %d", r.census.Declined, declined)
	check(r.census.Events == 1 && r.census.Unpublished == 0, "%d outbox events, %d unpublished", r.census.Events, r.census.Unpublished)
	check(r.outside.Events == 1, "%d events delivered", r.outside.Events)
}

// sell runs one sale as a child process.
func (m *matrix) sell(ctx context.Context, r Request, dies string) (order Order, killed bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return order, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := json.Marshal(r)
	if err != nil {
		return order, false, err
	}
	cmd := exec.CommandContext(ctx, self, "-role", "sale", "-store", m.config.store, "-address", m.config.storeAddress,
		"-redis", m.config.redis, "-provider", m.config.provider, "-dies", dies, fmt.Sprintf("-naive=%v", m.config.naive))
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &out, &errs
	err = cmd.Run()
	for line := range strings.Lines(errs.String()) {
		fmt.Fprintf(m.log, "    %s", line)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL && dies != "" {
			return order, true, nil
		}
		return order, false, fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	if err != nil {
		return order, false, err
	}
	return order, false, json.Unmarshal(out.Bytes(), &order)
}

// printTable tells every row, and whether all hold.
func printTable(w io.Writer, rows []row) (ok bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "killed at\trestarts\tdeaths\tcharges\tseats\tdeclined\toutbox\tdelivered\tcoordinator\tholds")
	ok = true
	for _, r := range rows {
		holds := "yes"
		if len(r.wrong) > 0 {
			ok, holds = false, "NO: "+strings.Join(r.wrong, "; ")
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d in %d\t%s\t%s\n", r.what, r.restarts, r.deaths, r.outside.Charges,
			r.census.Seats, r.census.Declined, r.census.Events, r.outside.Events, r.outside.Deliveries, r.state, holds)
	}
	_ = table.Flush()
	return ok
}
