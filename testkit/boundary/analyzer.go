package boundary

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Result is what the analyzer knows of a package beside its findings.
type Result struct {
	// Waivers are the exceptions that covered a finding, in the order of the files.
	Waivers []Waiver
}

// NewAnalyzer returns the analyzer for a config. Its result is a *[Result]. Its flags
// -raw and -allow add patterns, separated by commas.
func NewAnalyzer(c Config) *analysis.Analyzer {
	a := &analysis.Analyzer{
		Name: "boundary",
		Doc: "report code that can receive, hold, make or hand on a raw Redis client\n\n" +
			"Services take Coord's contracts by injection; raw clients stay in redismodule.\n" +
			"An exception is a comment with its reason: " + mark + " <reason>",
		ResultType: reflect.TypeFor[*Result](),
	}
	add := func(to *[]string) func(string) error {
		return func(list string) error {
			for p := range strings.SplitSeq(list, ",") {
				if p = strings.TrimSpace(p); p == "" {
					return fmt.Errorf("an empty pattern in %q", list)
				}
				*to = append(*to, p)
			}
			return nil
		}
	}
	c.Raw, c.Allowed = slices.Clone(c.Raw), slices.Clone(c.Allowed)
	a.Flags.Func("raw", "more `patterns` of raw client packages, separated by commas", add(&c.Raw))
	a.Flags.Func("allow", "more `patterns` of packages that may use raw clients, separated by commas", add(&c.Allowed))
	a.Run = func(pass *analysis.Pass) (any, error) { return run(pass, c.rules()) }
	return a
}

func run(pass *analysis.Pass, r rules) (*Result, error) {
	result := &Result{}
	if r.isAllowed(pass.Pkg.Path()) {
		return result, nil
	}
	module := ""
	if pass.Module != nil {
		module = pass.Module.Path
	}
	reach := newReach(r, module)
	for _, f := range pass.Files {
		file := &fileCheck{pass: pass, reach: reach, lines: map[int]bool{}, waivers: waiversOf(pass.Fset, f)}
		file.check(f)
		file.finish(result)
	}
	return result, nil
}

// fileCheck is the analysis of one file: at most one finding for each line.
type fileCheck struct {
	pass    *analysis.Pass
	reach   *reach
	lines   map[int]bool // those with a finding, waived or not
	waivers []*waiver
}

func (c *fileCheck) check(f *ast.File) {
	for _, i := range f.Imports {
		if path, err := strconv.Unquote(i.Path.Value); err == nil && c.reach.rules.isRaw(path) {
			c.report(i.Pos(), "import", fmt.Sprintf("import of the raw client %s", path))
		}
	}
	for _, group := range f.Comments {
		for _, comment := range group.List {
			c.linkname(comment)
		}
	}
	ast.PreorderStack(f, nil, func(n ast.Node, stack []ast.Node) bool {
		if list, ok := n.(*ast.FieldList); ok {
			f, ok := stack[len(stack)-1].(*ast.FuncDecl)
			return !ok || f.Recv != list // the type of a receiver is reported where it is declared
		}
		e, ok := n.(ast.Expr)
		if !ok || c.spelt(e) {
			return true
		}
		// Names that are defined here are not in Types: what gives them their type is.
		if found := c.reach.of(c.pass.TypesInfo.Types[e].Type); found != "" {
			where := place(c.pass.TypesInfo, stack, e)
			c.report(e.Pos(), category(where), fmt.Sprintf("%s leads to the raw %s", where, found))
		}
		return true
	})
}

// spelt tells whether the parts of an expression say better what it leads to.
func (c *fileCheck) spelt(e ast.Expr) bool {
	instance := func(indices ...ast.Expr) bool {
		return slices.ContainsFunc(indices, func(i ast.Expr) bool { return c.pass.TypesInfo.Types[i].IsType() })
	}
	switch e := e.(type) {
	case *ast.FuncLit, *ast.FuncType, *ast.StructType, *ast.InterfaceType, *ast.StarExpr,
		*ast.ArrayType, *ast.MapType, *ast.ChanType, *ast.ParenExpr, *ast.Ellipsis, *ast.TypeAssertExpr:
		return true
	case *ast.IndexExpr:
		return instance(e.Index)
	case *ast.IndexListExpr:
		return instance(e.Indices...)
	}
	return false
}

// linkname reports a directive that reaches around the exported names.
func (c *fileCheck) linkname(comment *ast.Comment) {
	f := strings.Fields(comment.Text)
	if len(f) != 3 || f[0] != "//go:linkname" {
		return
	}
	slash := strings.LastIndex(f[2], "/")
	dot := strings.Index(f[2][slash+1:], ".")
	if dot < 0 {
		return
	}
	if path := f[2][:slash+1+dot]; c.reach.rules.isRaw(path) || matches(DefaultAllowed(), path) {
		c.report(comment.Pos(), "linkname", fmt.Sprintf("linkname into %s", path))
	}
}

// category is the first word or two of a place, for tools that sort findings.
func category(where string) string {
	if strings.HasPrefix(where, "argument of fx.") || strings.Contains(where, "fx.") {
		return "fx"
	}
	for _, c := range []string{"parameter", "result of a call", "result", "embedded", "field", "alias", "declared type", "interface method", "type parameter", "type argument", "type assertion", "function value", "variable"} {
		if strings.HasPrefix(where, c) {
			return strings.ReplaceAll(c, " ", "-")
		}
	}
	return "value"
}

const advice = "take a contract of package semantic by injection instead"

func (c *fileCheck) report(pos token.Pos, category, message string) {
	line := c.pass.Fset.Position(pos).Line
	if c.lines[line] {
		return
	}
	c.lines[line] = true
	for _, w := range c.waivers {
		if w.first <= line && line <= w.last {
			w.used = true
			if w.reason != "" {
				return
			}
		}
	}
	c.pass.Report(analysis.Diagnostic{Pos: pos, Category: category, Message: message + ": " + advice})
}

// finish reports what is wrong with the exceptions themselves and keeps the good ones.
func (c *fileCheck) finish(result *Result) {
	slices.SortFunc(c.waivers, func(a, b *waiver) int { return cmp.Compare(a.pos, b.pos) })
	for _, w := range c.waivers {
		switch {
		case w.reason == "":
			c.pass.Report(analysis.Diagnostic{Pos: w.pos, Category: "waiver", Message: "an exception without a reason: write " + mark + " <reason>"})
		case !w.used:
			c.pass.Report(analysis.Diagnostic{Pos: w.pos, Category: "waiver", Message: "an exception that excepts nothing: remove it"})
		default:
			result.Waivers = append(result.Waivers, Waiver{Position: c.pass.Fset.Position(w.pos), Reason: w.reason})
		}
	}
}
