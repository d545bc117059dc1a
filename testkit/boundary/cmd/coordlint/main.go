// Coordlint reports code that can receive, hold, make or hand on a raw Redis client.
//
//	go run github.com/wrkbelt/coord/testkit/boundary/cmd/coordlint ./...
//
// It ends with 0 if there is nothing to report, with 1 if there is, and with 2 if the
// packages cannot be loaded. It also is a vet tool:
//
//	go vet -vettool=$(which coordlint) ./...
//
// As a vet tool it has the flags -boundary.raw and -boundary.allow, go vet's own -tags,
// and does not list exceptions.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/wrkbelt/coord/testkit/boundary"
	"github.com/wrkbelt/coord/testkit/boundary/internal/driver"
)

func main() {
	if calledByVet(os.Args[1:]) {
		unitchecker.Main(boundary.NewAnalyzer(boundary.Config{}))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// calledByVet tells whether the go command asks: for the tool's version, for its flags,
// or about one package described by a .cfg file.
func calledByVet(args []string) bool {
	for _, a := range args {
		if strings.HasPrefix(a, "-V") || a == "-flags" || strings.HasSuffix(a, ".cfg") {
			return true
		}
	}
	return false
}

func run(args []string, stdout, stderr io.Writer) int {
	analyzer := boundary.NewAnalyzer(boundary.Config{})
	set := flag.NewFlagSet("coordlint", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		fmt.Fprintf(stderr, "usage: coordlint [flags] [packages]\n\n%s\n\n", analyzer.Doc)
		set.PrintDefaults()
	}
	analyzer.Flags.VisitAll(func(f *flag.Flag) { set.Var(f.Value, f.Name, f.Usage) })
	tags := set.String("tags", "", "build `tags`, separated by commas: run once for each set in use")
	tests := set.Bool("test", true, "look at _test.go files too")
	limit := set.Int("waivers", -1, "most exceptions allowed; negative: any number")
	if err := set.Parse(args); err != nil {
		return 2
	}
	report, err := driver.Run(analyzer, driver.Request{Patterns: set.Args(), Tags: *tags, NoTests: !*tests})
	if err != nil {
		fmt.Fprintln(stderr, "coordlint:", err)
		return 2
	}
	for _, f := range report.Findings {
		fmt.Fprintln(stdout, f)
	}
	for _, w := range report.Waivers {
		fmt.Fprintf(stdout, "%s: exception: %s\n", w.Position, w.Reason)
	}
	fmt.Fprintf(stdout, "coordlint: packages=%d findings=%d exceptions=%d\n", report.Packages, len(report.Findings), len(report.Waivers))
	if len(report.Findings) > 0 {
		return 1
	}
	if *limit >= 0 && len(report.Waivers) > *limit {
		fmt.Fprintf(stdout, "coordlint: at most %d exceptions are allowed\n", *limit)
		return 1
	}
	return 0
}
