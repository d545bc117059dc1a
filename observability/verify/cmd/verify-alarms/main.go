// The command verify-alarms prints what watches each signal of Coord, and the verdict of
// every checker. It exits with 1 if a signal could go unwatched.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/verify"
)

func main() {
	root := flag.String("root", ".", "the repository")
	sites := flag.Bool("write-sites", false, "write sites.txt and check nothing")
	emitted := flag.String("emitted", "", "check only the lines that tests have recorded in this directory")
	flag.Parse()
	ok, err := run(os.Stdout, *root, *sites, *emitted)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify-alarms:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

func run(out io.Writer, root string, write bool, recorded string) (bool, error) {
	defer verify.Close()
	tree, err := verify.Load(root)
	if err != nil {
		return false, err
	}
	sites := tree.Code.Sites()
	if write {
		return true, os.WriteFile(filepath.Join(root, filepath.FromSlash(verify.SitesFile)), verify.Golden(sites), 0o644)
	}
	if recorded != "" {
		problems, lines, err := tree.CheckEmitted(root, recorded)
		for _, p := range problems {
			fmt.Fprintln(out, p)
		}
		fmt.Fprintf(out, "emitted: %d lines, %d signals, %d problems\n", lines, len(tree.Catalog), len(problems))
		return len(problems) == 0, err
	}
	emitted := map[observability.Key]int{}
	for _, s := range sites {
		emitted[s.Key]++
	}
	problems := tree.Check()
	wrong, failed := map[observability.Key]bool{}, map[string]int{}
	for _, p := range problems {
		wrong[p.Key] = true
		failed[p.Checker]++
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range tree.Catalog {
		verdict, watched := "ok", "waived: "+s.Waiver
		if wrong[s.Key] {
			verdict = "FAILED"
		}
		if s.Alarm != nil {
			watched = "alarm: " + s.Alarm.String()
		}
		fmt.Fprintf(table, "%s\t%s\temitted in %d places\t%s\n", verdict, s.Key, emitted[s.Key], watched)
	}
	fmt.Fprintln(table)
	for _, c := range verify.Checkers() {
		verdict := "ok"
		if n := failed[c.Name]; n > 0 {
			verdict = fmt.Sprintf("FAILED (%d)", n)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", verdict, c.Name, c.Of)
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	return len(problems) == 0, nil
}
