package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/wrkbelt/coord/observability"
	"github.com/wrkbelt/coord/observability/internal/contract"
	"github.com/wrkbelt/coord/observability/internal/render"
)

// Tree is what is checked. Mutations change it; the checks do not.
type Tree struct {
	Catalog []observability.Signal
	Files   map[string][]byte // the generated files, by their place in the repository
	Code    *Code
}

// Load reads the repository at root: its generated files, and its code with types.
func Load(root string) (Tree, error) {
	t := Tree{Catalog: observability.Catalog(), Files: map[string][]byte{}}
	for _, name := range []string{render.CloudFormation, render.Prometheus, render.Dashboard, render.Runbook} {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return t, err
		}
		t.Files[name] = content
	}
	var err error
	t.Code, err = LoadCode(root)
	return t, err
}

// Problem is something wrong.
type Problem struct {
	Checker string
	Key     observability.Key // the signal it is about; empty for none in particular
	Text    string
}

func (p Problem) String() string {
	if p.Key == "" {
		return p.Checker + ": " + p.Text
	}
	return fmt.Sprintf("%s: %s: %s", p.Checker, p.Key, p.Text)
}

// Checker is one check of a tree.
type Checker struct {
	Name string
	Of   string // what it compares, for people
	// reads is what it compares the catalog with: a generated file, the code, or nothing.
	reads string
	run   func(Tree, *Report)
}

// theCode is what checkers of the code read.
const theCode = "the code"

// Checkers returns every check, the contract's first.
func Checkers() []Checker {
	return []Checker{
		{"catalog", "every entry has exactly one of alarm and waiver, and all its words", "", wrap(contract.Entries)},
		{"methods", "every method of Signals writes what its entry says", "", wrap(contract.Methods)},
		{"sites", "every signal is emitted by the code, where sites.txt says, and by nothing else", theCode, checkSites},
		{"cloudformation", "the template against CloudFormation's schema, enumerations and limits", render.CloudFormation, checkCloudFormation},
		{"cloudwatch", "each filter on zap's lines of every signal; each alarm against its entry", render.CloudFormation, checkCloudWatch},
		{"prometheus", "the rules by Prometheus' parser, and by its engine on cases that fire and do not", render.Prometheus, checkPrometheus},
		{"grafana", "the dashboard by Grafana's types, its queries by Prometheus' engine", render.Dashboard, checkGrafana},
		{"runbook", "each signal and each alarm's link has its place in the runbook", render.Runbook, checkRunbook},
	}
}

// Check runs every check.
func (t Tree) Check() []Problem {
	return t.check(func(Checker) bool { return true })
}

func (t Tree) check(which func(Checker) bool) (all []Problem) {
	for _, c := range Checkers() {
		if which(c) {
			r := Report{checker: c.Name}
			c.run(t, &r)
			all = append(all, r.problems...)
		}
	}
	return all
}

// Report collects the problems of one check.
type Report struct {
	checker  string
	problems []Problem
}

func (r *Report) add(key observability.Key, format string, args ...any) {
	r.problems = append(r.problems, Problem{r.checker, key, fmt.Sprintf(format, args...)})
}

// wrap makes a checker of a check of the catalog alone.
func wrap(check func([]observability.Signal) []contract.Problem) func(Tree, *Report) {
	return func(t Tree, r *Report) {
		for _, p := range check(t.Catalog) {
			r.add(p.Key, "%s", p.Text)
		}
	}
}

// entry returns the catalog's entry of a key.
func (t Tree) entry(key observability.Key) (observability.Signal, bool) {
	i := slices.IndexFunc(t.Catalog, func(s observability.Signal) bool { return s.Key == key })
	if i < 0 {
		return observability.Signal{}, false
	}
	return t.Catalog[i], true
}
