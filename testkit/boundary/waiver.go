package boundary

import (
	"go/ast"
	"go/token"
	"strings"
)

// mark begins the comment that makes an exception.
const mark = "//coord:allow-raw"

// Waiver is one exception.
type Waiver struct {
	Position token.Position
	Reason   string
}

// waiver is one exception and the lines it covers.
type waiver struct {
	pos         token.Pos
	reason      string
	first, last int
	used        bool
}

// waiversOf reads the exceptions of a file.
func waiversOf(fset *token.FileSet, f *ast.File) []*waiver {
	var all []*waiver
	byComment := map[*ast.Comment]*waiver{}
	for _, group := range f.Comments {
		for _, c := range group.List {
			rest, ok := strings.CutPrefix(c.Text, mark)
			if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
				continue
			}
			reason, _, _ := strings.Cut(rest, "//") // another comment in the same one
			line := fset.Position(c.Pos()).Line
			w := &waiver{pos: c.Pos(), reason: strings.TrimSpace(reason), first: line, last: line}
			switch {
			case c.Pos() < f.Package:
				w.last = fset.Position(f.FileEnd).Line // the whole file
			case startsLine(fset, f, c):
				// Alone on its line, it is for what follows the comments.
				w.last = fset.Position(group.End()).Line + 1
			}
			all = append(all, w)
			byComment[c] = w
		}
	}
	cover := func(doc *ast.CommentGroup, n ast.Node) {
		if doc == nil {
			return
		}
		for _, c := range doc.List {
			if w := byComment[c]; w != nil {
				w.last = fset.Position(n.End()).Line
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			cover(n.Doc, n)
		case *ast.GenDecl:
			cover(n.Doc, n)
		case *ast.TypeSpec:
			cover(n.Doc, n)
		case *ast.ValueSpec:
			cover(n.Doc, n)
		case *ast.Field:
			cover(n.Doc, n)
		}
		return true
	})
	return all
}

// startsLine tells whether no code stands before a comment on its line.
func startsLine(fset *token.FileSet, f *ast.File, c *ast.Comment) bool {
	line := fset.Position(c.Pos()).Line
	alone := true
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.File:
			return true
		case *ast.Comment, *ast.CommentGroup:
			return false
		}
		if !alone || n.Pos() >= c.Pos() {
			return false
		}
		if fset.Position(n.Pos()).Line == line || n.End() <= c.Pos() && fset.Position(n.End()).Line == line {
			alone = false
		}
		return alone
	})
	return alone
}
