package boundary

import (
	"go/types"
	"strings"
)

// reach answers what raw type a type leads to for who holds a value of it: by its
// spelling, exported or embedded fields, exported methods and type arguments. Of types
// made elsewhere than in this program the hidden fields count too: what holds a client
// is used to talk to Redis, whatever it is called.
type reach struct {
	rules rules
	own   string // path of the module under analysis; "" if it is not known

	known map[types.Type]string // what is settled
}

func newReach(r rules, module string) *reach {
	return &reach{rules: r, own: module, known: map[types.Type]string{}}
}

// of returns the raw type that t leads to, or "".
func (r *reach) of(t types.Type) string {
	if t == nil {
		return ""
	}
	if found, ok := r.known[t]; ok {
		return found
	}
	seen := map[types.Type]bool{}
	found := r.walk(t, seen)
	if found == "" { // then it is so for all that was seen, cycles included
		for s := range seen {
			r.known[s] = ""
		}
	}
	r.known[t] = found
	return found
}

func (r *reach) walk(t types.Type, seen map[types.Type]bool) string {
	if seen[t] {
		return ""
	}
	if found, ok := r.known[t]; ok {
		return found
	}
	seen[t] = true
	var found string
	visit := func(t types.Type) bool {
		if found == "" {
			found = r.walk(t, seen)
		}
		return found == ""
	}
	switch t := t.(type) {
	case *types.Alias:
		for arg := range t.TypeArgs().Types() {
			visit(arg)
		}
		visit(types.Unalias(t))
	case *types.Named:
		return r.named(t, seen)
	case *types.Pointer:
		visit(t.Elem())
	case *types.Slice:
		visit(t.Elem())
	case *types.Array:
		visit(t.Elem())
	case *types.Chan:
		visit(t.Elem())
	case *types.Map:
		_ = visit(t.Key()) && visit(t.Elem())
	case *types.Tuple:
		for v := range t.Variables() {
			visit(v.Type())
		}
	case *types.Signature:
		_ = visit(t.Params()) && visit(t.Results())
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() || r.foreign(f.Pkg()) {
				visit(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				visit(m.Type())
			}
		}
		for e := range t.EmbeddedTypes() {
			visit(e)
		}
	case *types.Union:
		for term := range t.Terms() {
			visit(term.Type())
		}
	case *types.TypeParam:
		visit(t.Constraint())
	}
	return found
}

func (r *reach) named(t *types.Named, seen map[types.Type]bool) string {
	p := t.Obj().Pkg()
	if p == nil {
		return ""
	}
	if r.rules.isRaw(p.Path()) {
		return p.Path() + "." + t.Obj().Name()
	}
	for arg := range t.TypeArgs().Types() {
		if found := r.walk(arg, seen); found != "" {
			return found
		}
	}
	if std(p.Path()) {
		return "" // leads nowhere but through its arguments
	}
	for m := range t.Methods() {
		if m.Exported() {
			if found := r.walk(m.Type(), seen); found != "" {
				return found
			}
		}
	}
	return r.walk(t.Underlying(), seen)
}

// foreign tells whether a package is of another module than the one under analysis, and
// not one of those that may hold a client.
func (r *reach) foreign(p *types.Package) bool {
	if p == nil || r.own == "" || std(p.Path()) {
		return false
	}
	return !matches([]string{r.own}, p.Path()) && !r.rules.isAllowed(p.Path())
}

// std tells whether a path is of the standard library: its first element has no dot.
func std(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
