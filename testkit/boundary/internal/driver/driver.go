// Package driver loads packages and runs the boundary analyzer on them, for the command
// and for the test helper.
package driver

import (
	"cmp"
	"errors"
	"fmt"
	"go/token"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/wrkbelt/coord/testkit/boundary"
)

// Request says what to look at.
type Request struct {
	Dir      string   // of the go command; "" is the current one
	Env      []string // nil is the process's
	Patterns []string // as of go list; none is ./...
	Tags     string   // build tags, separated by commas
	NoTests  bool     // leave _test.go files out
}

// Finding is one violation.
type Finding struct {
	Position token.Position
	Category string
	Message  string
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s", f.Position, f.Message) }

// Report is what was found.
type Report struct {
	Packages int
	Findings []Finding
	Waivers  []boundary.Waiver
}

// Run loads the packages and applies the analyzer. Patterns that match nothing, and
// packages that do not compile, are errors: nothing is passed unseen.
func Run(a *analysis.Analyzer, r Request) (*Report, error) {
	config := &packages.Config{
		// Without NeedDeps dependencies come as export data: their code is not parsed.
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo |
			packages.NeedModule | packages.NeedExportFile,
		Dir: r.Dir, Env: r.Env, Tests: !r.NoTests,
	}
	if r.Tags != "" {
		config.BuildFlags = []string{"-tags=" + r.Tags}
	}
	if len(r.Patterns) == 0 {
		r.Patterns = []string{"./..."}
	}
	loaded, err := packages.Load(config, r.Patterns...)
	if err != nil {
		return nil, fmt.Errorf("load %v: %w", r.Patterns, err)
	}
	var bad []error
	for _, p := range loaded {
		for _, e := range p.Errors {
			bad = append(bad, e)
		}
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("load %v: %w", r.Patterns, err)
	}
	if len(loaded) == 0 {
		return nil, fmt.Errorf("load %v: no packages", r.Patterns)
	}
	graph, err := checker.Analyze([]*analysis.Analyzer{a}, loaded, nil)
	if err != nil {
		return nil, err
	}
	report := &Report{}
	paths, findings, waivers := map[string]bool{}, map[Finding]bool{}, map[boundary.Waiver]bool{}
	for _, action := range graph.Roots {
		if action.Err != nil {
			return nil, fmt.Errorf("%s: %w", action.Package.ID, action.Err)
		}
		paths[action.Package.PkgPath] = true
		for _, d := range action.Diagnostics {
			// A package and its test variant have files in common.
			f := Finding{action.Package.Fset.Position(d.Pos), d.Category, d.Message}
			if !findings[f] {
				findings[f] = true
				report.Findings = append(report.Findings, f)
			}
		}
		for _, w := range action.Result.(*boundary.Result).Waivers {
			if !waivers[w] {
				waivers[w] = true
				report.Waivers = append(report.Waivers, w)
			}
		}
	}
	report.Packages = len(paths)
	slices.SortFunc(report.Findings, func(a, b Finding) int { return byPosition(a.Position, b.Position) })
	slices.SortFunc(report.Waivers, func(a, b boundary.Waiver) int { return byPosition(a.Position, b.Position) })
	return report, nil
}

func byPosition(a, b token.Position) int {
	return cmp.Or(cmp.Compare(a.Filename, b.Filename), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
