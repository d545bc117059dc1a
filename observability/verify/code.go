package verify

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

const (
	module       = "github.com/wrkbelt/coord"
	catalogRoom  = module + "/observability"
	examplesRoom = module + "/examples"
)

// SitesFile lists where each signal is emitted.
const SitesFile = "observability/verify/sites.txt"

// Code is the root module's production code with its types. The examples are users'
// programs and no part of it.
type Code struct {
	Packages []*Package
	Golden   []byte // sites.txt
}

// Package is one package of it.
type Package struct {
	Path  string
	Fset  *token.FileSet
	Files []*ast.File
	Types *types.Package
	Info  *types.Info
	names []string // the files' names, in their order
	facts func() facts
}

// LoadCode type-checks the module at root.
func LoadCode(root string) (*Code, error) {
	mode := packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
		packages.NeedTypes | packages.NeedTypesInfo | packages.NeedSyntax | packages.NeedTypesSizes
	loaded, err := packages.Load(&packages.Config{Mode: mode, Dir: root}, "./...")
	if err != nil {
		return nil, err
	}
	code := &Code{}
	for _, p := range loaded {
		for _, e := range p.Errors {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, e)
		}
		if under(p.PkgPath, examplesRoom) {
			continue
		}
		code.add(&Package{
			Path: p.PkgPath, Fset: p.Fset, Files: p.Syntax, Types: p.Types, Info: p.TypesInfo, names: p.CompiledGoFiles,
		})
	}
	if len(code.Packages) < 10 {
		return nil, fmt.Errorf("%d packages under %s, want the whole module", len(code.Packages), root)
	}
	code.Golden, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(SitesFile)))
	return code, err
}

func (c *Code) add(p *Package) {
	if p.facts == nil {
		p.facts = sync.OnceValue(func() facts { return look(p) })
	}
	c.Packages = append(c.Packages, p)
}

func under(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }

// With returns the code with the text of one file changed, or a new file of a package
// added. The package is type-checked anew; what it imports stays.
func (c *Code) With(path, file string, text []byte) (*Code, error) {
	changed := &Code{Golden: c.Golden}
	for _, p := range c.Packages {
		if p.Path == path {
			var err error
			if p, err = p.with(file, text); err != nil {
				return nil, err
			}
		}
		changed.add(p)
	}
	return changed, nil
}

func (p *Package) with(file string, text []byte) (*Package, error) {
	next := &Package{
		Path: p.Path, Fset: token.NewFileSet(),
		Info: &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
			Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		},
	}
	names := p.names
	if !slices.Contains(names, file) {
		names = append(names[:len(names):len(names)], file)
	}
	for _, name := range names {
		var source any
		if name == file {
			source = text
		}
		parsed, err := parser.ParseFile(next.Fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		next.Files, next.names = append(next.Files, parsed), append(next.names, name)
	}
	var hard []error
	checker := types.Config{
		Importer: importsOf(p.Types, next.Fset),
		Error: func(err error) {
			var e types.Error
			if !errors.As(err, &e) || !e.Soft {
				hard = append(hard, err)
			}
		},
	}
	next.Types, _ = checker.Check(p.Path, next.Fset, next.Files, next.Info)
	return next, errors.Join(hard...)
}

// imports gives a package again what it has imported, at any distance, so that types
// stay the same; what it has not, it reads from source.
type imports struct {
	known map[string]*types.Package
	other types.Importer
}

func importsOf(p *types.Package, files *token.FileSet) *imports {
	i := &imports{known: map[string]*types.Package{}, other: importer.ForCompiler(files, "source", nil)}
	var walk func(*types.Package)
	walk = func(p *types.Package) {
		if i.known[p.Path()] == nil {
			i.known[p.Path()] = p
			for _, imported := range p.Imports() {
				walk(imported)
			}
		}
	}
	walk(p)
	return i
}

// Import returns a package by its path.
func (i *imports) Import(path string) (*types.Package, error) {
	if p := i.known[path]; p != nil && p.Complete() {
		return p, nil
	}
	return i.other.Import(path)
}
