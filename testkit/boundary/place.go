package boundary

import (
	"go/ast"
	"go/types"
	"slices"
)

// place says in words where in the code an expression with a raw type stands. stack are
// the nodes around it, the outermost first, without itself.
func place(info *types.Info, stack []ast.Node, e ast.Expr) string {
	child := ast.Node(e)
	for _, n := range slices.Backward(stack) {
		switch n := n.(type) {
		case *ast.Field:
			return fieldPlace(info, stack, n)
		case *ast.TypeSpec:
			if n.Assign.IsValid() {
				return "alias " + n.Name.Name
			}
			return "declared type " + n.Name.Name
		case *ast.TypeAssertExpr:
			if n.Type == child {
				return "type assertion"
			}
		case *ast.CallExpr:
			if verb := fxVerb(info, n); verb != "" && n.Fun != child {
				return "argument of fx." + verb
			}
		case *ast.IndexExpr:
			if n.X != child {
				return "type argument"
			}
		case *ast.IndexListExpr:
			if n.X != child {
				return "type argument"
			}
		case *ast.ValueSpec:
			if n.Type == child {
				return "variable"
			}
		case *ast.FuncLit, *ast.FuncDecl:
			return valuePlace(info, stack, e)
		}
		child = n
	}
	return valuePlace(info, stack, e)
}

// fieldPlace is the place of a parameter, result, struct field, interface method or
// type parameter.
func fieldPlace(info *types.Info, stack []ast.Node, field *ast.Field) string {
	i := slices.Index(stack, ast.Node(field))
	if i < 2 {
		return "field"
	}
	list, around := stack[i-1], stack[:i-1] // a field is in a list of an owner
	switch owner := around[i-2].(type) {
	case *ast.StructType:
		if len(field.Names) == 0 {
			return "embedded field" + fxStruct(info, owner)
		}
		return "field" + fxStruct(info, owner)
	case *ast.InterfaceType:
		switch {
		case len(field.Names) > 0:
			return "interface method " + field.Names[0].Name
		case inTypeParameters(around):
			return "type parameter"
		}
		return "embedded interface"
	case *ast.FuncType:
		switch list {
		case owner.TypeParams:
			return "type parameter"
		case owner.Results:
			return signaturePlace(info, "result", around)
		}
		return signaturePlace(info, "parameter", around)
	}
	return "type parameter" // of a declared type
}

// signaturePlace is the place of a parameter or result. The last of stack is the
// function's type.
func signaturePlace(info *types.Info, what string, stack []ast.Node) string {
	around := stack[:len(stack)-1]
	switch f := around[len(around)-1].(type) {
	case *ast.FuncDecl:
		if f.Recv == nil {
			return what + " of " + f.Name.Name
		}
		return what + " of method " + f.Name.Name
	case *ast.FuncLit:
		for _, n := range slices.Backward(around) {
			if call, ok := n.(*ast.CallExpr); ok && fxVerb(info, call) != "" {
				return what + " of a function given to fx." + fxVerb(info, call)
			}
		}
		return what + " of a function"
	case *ast.Field: // of what has the function: a method, a field, a parameter
		return fieldPlace(info, around, f)
	}
	return what + " of a function type"
}

// fxStruct says whether a struct is one that fx fills in or takes apart.
func fxStruct(info *types.Info, s *ast.StructType) string {
	for _, f := range s.Fields.List {
		if len(f.Names) > 0 {
			continue
		}
		// fx.In is an alias of dig's type of that name.
		n, ok := types.Unalias(info.TypeOf(f.Type)).(*types.Named)
		if ok && n.Obj().Pkg() != nil && isFx(n.Obj().Pkg().Path()) {
			return " of an fx." + n.Obj().Name() + " struct"
		}
	}
	return ""
}

// inTypeParameters tells whether the last node is in a list of type parameters.
func inTypeParameters(stack []ast.Node) bool {
	for i, n := range stack[1:] {
		switch owner := stack[i].(type) {
		case *ast.FuncType:
			if owner.TypeParams == n {
				return true
			}
		case *ast.TypeSpec:
			if owner.TypeParams == n {
				return true
			}
		}
	}
	return false
}

// valuePlace is the place of an expression that is a value, or a type in a body.
func valuePlace(info *types.Info, stack []ast.Node, e ast.Expr) string {
	tv := info.Types[e]
	if tv.IsType() {
		return "type"
	}
	if _, ok := e.(*ast.CallExpr); ok {
		return "result of a call"
	}
	if _, ok := tv.Type.Underlying().(*types.Signature); ok {
		if len(stack) > 0 {
			if call, ok := stack[len(stack)-1].(*ast.CallExpr); ok && call.Fun == e {
				return "result of a call"
			}
		}
		return "function value"
	}
	return "value"
}

// fxVerb is the name of the fx function that a call calls, or "".
func fxVerb(info *types.Info, call *ast.CallExpr) string {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	var id *ast.Ident
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		id = f.Sel
	case *ast.Ident: // a dot import
		id = f
	default:
		return ""
	}
	if o, ok := info.Uses[id].(*types.Func); ok && o.Pkg() != nil && isFx(o.Pkg().Path()) {
		return o.Name()
	}
	return ""
}

func isFx(path string) bool { return matches([]string{"go.uber.org/fx", "go.uber.org/dig"}, path) }
