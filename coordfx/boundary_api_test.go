package coordfx_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// world is what the compiler exported of this module's packages and all that they
// depend on.
type world struct {
	files    map[string]string // of export data, by import path
	own      []string          // packages that a user's program can import
	importer types.Importer
}

func openWorld(t *testing.T) *world {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.DepOnly}}\t{{.Name}}\t{{len .GoFiles}}", "./...")
	list.Dir = ".."
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	w := &world{files: map[string]string{}}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		path, export, dependency, name, empty := f[0], f[1], f[2] == "true", f[3], f[4] == "0"
		w.files[path] = export
		if !dependency && !empty && name != "main" && !strings.Contains(path+"/", "/internal/") {
			w.own = append(w.own, path)
		}
	}
	w.importer = importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		file, ok := w.files[path]
		if !ok || file == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(file)
	})
	return w
}

// exposed says which exported symbols of a package reach a raw client type: by what
// they are spelt with, by exported fields, by methods, through as many types as it takes.
func exposed(p *types.Package) []string {
	raw := rawPackage
	if strings.Contains(p.Path()+"/", "/examples/") {
		raw = regexp.MustCompile(redisDriver) // an example may have a database of its own
	}
	var found []string
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		r := reach{raw: raw, seen: map[types.Type]bool{}}
		if via := r.walk(o.Type(), p.Name()+"."+name); via != "" {
			found = append(found, via)
		}
	}
	return found
}

// reach is one walk over types. Results are the way to a raw type, or "".
type reach struct {
	raw  *regexp.Regexp
	seen map[types.Type]bool
}

func (r reach) walk(t types.Type, way string) string {
	if r.seen[t] {
		return ""
	}
	r.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		return r.walk(types.Unalias(t), way)
	case *types.Named:
		return r.named(t, way)
	case *types.Pointer:
		return r.walk(t.Elem(), way)
	case *types.Slice:
		return r.walk(t.Elem(), way)
	case *types.Array:
		return r.walk(t.Elem(), way)
	case *types.Chan:
		return r.walk(t.Elem(), way)
	case *types.Map:
		return first(r.walk(t.Key(), way), r.walk(t.Elem(), way))
	case *types.Tuple:
		for v := range t.Variables() {
			if via := r.walk(v.Type(), way); via != "" {
				return via
			}
		}
	case *types.Signature:
		for p := range t.TypeParams().TypeParams() {
			if via := r.walk(p.Constraint(), way); via != "" {
				return via
			}
		}
		return first(r.walk(t.Params(), way), r.walk(t.Results(), way))
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() { // what an embedded field has is promoted
				if via := r.walk(f.Type(), way+"."+f.Name()); via != "" {
					return via
				}
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				if via := r.walk(m.Type(), way+"."+m.Name()); via != "" {
					return via
				}
			}
		}
		for e := range t.EmbeddedTypes() {
			if via := r.walk(e, way); via != "" {
				return via
			}
		}
	case *types.Union:
		for term := range t.Terms() {
			if via := r.walk(term.Type(), way); via != "" {
				return via
			}
		}
	}
	return ""
}

func (r reach) named(t *types.Named, way string) string {
	if p := t.Obj().Pkg(); p != nil && r.raw.MatchString(p.Path()+"/") {
		return fmt.Sprintf("%s reaches %s.%s", way, p.Path(), t.Obj().Name())
	}
	for arg := range t.TypeArgs().Types() {
		if via := r.walk(arg, way); via != "" {
			return via
		}
	}
	for m := range t.Methods() {
		if m.Exported() {
			if via := r.walk(m.Type(), way+"."+m.Name()); via != "" {
				return via
			}
		}
	}
	return r.walk(t.Underlying(), way)
}

func first(ways ...string) string {
	for _, w := range ways {
		if w != "" {
			return w
		}
	}
	return ""
}

func TestNoExportedSymbolReachesARawClient(t *testing.T) {
	w := openWorld(t)
	if len(w.own) < 8 {
		t.Errorf("only %d packages were looked at: %v", len(w.own), w.own)
	}
	for _, path := range w.own {
		p, err := w.importer.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, via := range exposed(p) {
			t.Error(via)
		}
	}

	t.Run("a planted symbol turns it red", func(t *testing.T) {
		for _, c := range []struct{ name, source, way string }{
			{"function", `func Get() *redis.Client { return nil }`, "planted.Get reaches"},
			{"parameter", `func Use(func(redis.Cmdable) error) {}`, "planted.Use reaches"},
			{"variable", `var Shared redis.UniversalClient`, "planted.Shared reaches"},
			{"alias", `type Client = redis.Client`, "planted.Client reaches"},
			{"declared type", `type Config struct { Options *redis.Options }`, "planted.Config.Options reaches"},
			{"embedded in an unexported struct", `type inner struct { *redis.Client }; type Store struct { inner }`, "planted.Store.inner.Client reaches"},
			{"method of an unexported type", `type store struct { c *redis.Client }; func (s *store) Raw() *redis.Client { return s.c }; func Open() *store { return nil }`, "planted.Open.Raw reaches"},
			{"interface", `type Cmds interface { Get(key string) *redis.StringCmd }`, "planted.Cmds.Get reaches"},
			{"container", `var Pools map[string]chan []*redis.PubSub`, "planted.Pools reaches"},
			{"generic", `type Box[T any] struct { v T }; type Boxed struct { Box Box[*redis.Client] }`, "planted.Boxed.Box reaches"},
			{"constraint", `func Do[T interface{ *redis.Client | *redis.Ring }](T) {}`, "planted.Do reaches"},
			{"own connection layer", `func Get() *conn.Command { return nil }`, "planted.Get reaches github.com/wrkbelt/coord/redismodule/internal/conn.Command"},
			{"hidden", `type Store struct { c *redis.Client }; func (s *Store) Len() int { return s.use(s.c) }; func (s *Store) use(*redis.Client) int { return 0 }`, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				found := exposed(w.check(t, c.source))
				if c.way == "" && len(found) != 0 {
					t.Errorf("found %q, want nothing: no one outside can reach it", found)
				}
				if c.way != "" && (len(found) != 1 || !strings.HasPrefix(found[0], c.way)) {
					t.Errorf("found %q, want %q", found, c.way)
				}
			})
		}
	})
}

// check makes a package of some declarations.
func (w *world) check(t *testing.T, declarations string) *types.Package {
	t.Helper()
	source := "package planted\nimport \"github.com/redis/go-redis/v9\"\nimport \"github.com/wrkbelt/coord/redismodule/internal/conn\"\n" +
		"var _ redis.Cmdable; var _ conn.Command\n" + declarations
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "planted.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&types.Config{Importer: w.importer}).Check("example.com/planted", fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
