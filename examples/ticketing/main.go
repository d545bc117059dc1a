package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ticketing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("ticketing", flag.ContinueOnError)
	crash := flags.String("crash", "all", "`point` at which sales die, or all")
	list := flags.Bool("list", false, "list the points")
	store := flags.String("store", "sqlite", "durable store: sqlite, memory or mongodb")
	mongoURI := flags.String("mongodb", os.Getenv("COORD_TEST_MONGODB_URI"), "`URI` of MongoDB, for -store mongodb")
	redisURL := flags.String("redis", "", "`URL` of Redis; default: one of its own")
	naive := flags.Bool("naive", false, "make the mistake of naming charges by the lease's token; the table must not hold")
	verbose := flags.Bool("v", false, "show what the sales say")
	// The rest is for the processes that this one starts.
	role := flags.String("role", "", "internal")
	address := flags.String("address", "", "internal")
	provider := flags.String("provider", "", "internal")
	dies := flags.String("dies", "", "internal")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	switch {
	case *role == "provider":
		return runProvider()
	case *role == "sale":
		var r Request
		if err := json.NewDecoder(in).Decode(&r); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
		defer cancel()
		order, err := runSale(ctx, saleConfig{store: *store, storeAddress: *address, redis: *redisURL, provider: *provider, dies: *dies, naive: *naive}, r)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(order)
	case *list:
		fmt.Fprintln(out, strings.Join(points(), "\n"))
		return nil
	case *crash != "all" && !slices.Contains(points(), *crash):
		return fmt.Errorf("point %q: want all or one of %s", *crash, strings.Join(points(), ", "))
	case *store == "mongodb" && *mongoURI == "":
		return errors.New("-store mongodb needs -mongodb URI")
	}
	log := io.Discard
	if *verbose {
		log = out
	}
	return table(ctx, out, log, saleConfig{store: *store, storeAddress: *mongoURI, redis: *redisURL, naive: *naive}, *crash)
}

// table runs every row and prints them.
func table(ctx context.Context, out, log io.Writer, config saleConfig, crash string) error {
	m, stop, err := openMatrix(ctx, config, log)
	if err != nil {
		return err
	}
	defer stop()
	var rows []row
	for _, point := range points() {
		for restarts := 1; restarts <= 2 && (crash == "all" || crash == point); restarts++ {
			rows = append(rows, m.crash(ctx, point, restarts))
		}
	}
	if crash == "all" {
		rows = append(rows,
			m.race(ctx, "two buyers, one seat", "a", "b"),
			m.race(ctx, "four replicas, one request", "a", "a", "a", "a"))
	}
	if !printTable(out, rows) {
		return errors.New("some rows do not hold")
	}
	return nil
}
