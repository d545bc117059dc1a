// The command mutate-contract shows that the checks bite: it takes out each place that
// emits a signal, each entry of the catalog and each thing generated from it, one at a
// time, and runs every check. It exits with 1 if one of them is not missed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/wrkbelt/coord/observability/verify"
)

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	survived, err := run(os.Stdout, *root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate-contract:", err)
	}
	if survived > 0 || err != nil {
		os.Exit(1)
	}
}

func run(out io.Writer, root string) (survived int, err error) {
	defer verify.Close()
	tree, err := verify.Load(root)
	if err != nil {
		return 0, err
	}
	if problems := tree.Check(); len(problems) > 0 {
		return 0, fmt.Errorf("the tree itself has %d problems, the first: %s", len(problems), problems[0])
	}
	mutations, err := tree.Mutations()
	if err != nil {
		return 0, err
	}
	for _, m := range mutations {
		if m.Err != nil {
			return survived, fmt.Errorf("%s cannot be taken out: %w", m.Name, m.Err)
		}
		var by []string
		for _, p := range m.Check() {
			if !slices.Contains(by, p.Checker) {
				by = append(by, p.Checker)
			}
		}
		if len(by) == 0 {
			survived++
			fmt.Fprintf(out, "SURVIVED  %s\n", m.Name)
			continue
		}
		fmt.Fprintf(out, "caught    %s: by %s\n", m.Name, strings.Join(by, ", "))
	}
	fmt.Fprintf(out, "%d taken out, %d caught, %d survived\n", len(mutations), len(mutations)-survived, survived)
	return survived, nil
}
