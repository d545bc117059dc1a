// Command ferretdb starts an embedded FerretDB on a free loopback port, prints its
// URI on the first line of its output, and ends with SIGINT or SIGTERM. It stands in
// for MongoDB where none is installed; its data ends with it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/wrkbelt/coord/testkit/integration/ferret"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := ferret.Start()
	if err != nil {
		return err
	}
	fmt.Println(server.URI())
	<-ctx.Done()
	return server.Stop()
}
