package coord

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/wrkbelt/coord"

// Libraries, by what they are for.
const (
	redisClient = "github.com/redis/go-redis/v9"
	mongoDriver = "go.mongodb.org/mongo-driver/v2"
	awsSDK      = "github.com/aws/aws-sdk-go-v2"
	awsErrors   = "github.com/aws/smithy-go"
	zap         = "go.uber.org/zap"
	otel        = "go.opentelemetry.io/otel"
	fx          = "go.uber.org/fx"
	cronParser  = "github.com/netresearch/go-cron"
	localCache  = "github.com/maypok86/otter/v2"
	miniredis   = "github.com/alicebob/miniredis/v2"
	sync        = "golang.org/x/sync"
	anything    = "*"
)

// mayImport is the import table: what the code of each room may import besides the
// standard library and itself, rooms and libraries with all that is below them. fx is
// not in it: see TestOnlyModuleFilesImportFx. The longest matching room counts.
var mayImport = map[string][]string{
	"semantic":                   {},
	"semantic/operation":         {},
	"semantic/nearcache":         {"semantic", localCache},
	"observability":              {zap, otel},
	"redismodule":                {"semantic", "observability", redisClient, sync},
	"redismodule/operationstore": {"semantic/operation", "semantic", "observability", "redismodule", redisClient, otel},
	"mongolog":                   {"semantic", "observability", mongoDriver},
	"sqsfanout":                  {"semantic", "observability", awsSDK, awsErrors, sync},
	"cronfx":                     {"semantic", "observability", cronParser, sync},
	"coordfx":                    {"semantic", "observability", "redismodule", "mongolog", "sqsfanout", "cronfx", zap, otel, awsSDK, mongoDriver},
	"testkit":                    {"semantic", "observability", "cronfx", "sqsfanout", miniredis, awsSDK, awsErrors, zap},
	"testkit/telemetry":          {"observability", otel},
	"examples":                   {anything},
}

// rooms are the top-level directories, dotted ones aside.
var rooms = []string{
	"semantic", "observability", "redismodule", "mongolog", "sqsfanout", "cronfx",
	"coordfx", "testkit", "examples", "docs", "cmd",
}

// source is one Go file of the root module.
type source struct {
	dir, file string
	imports   []string
}

func (s source) isTest() bool { return strings.HasSuffix(s.file, "_test.go") }

// sources parses the imports of every Go file, whatever its build constraints, except
// those of nested modules.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(p, "go.mod"))
			if p != "." && (err == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		s := source{dir: filepath.ToSlash(filepath.Dir(p)), file: d.Name()}
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, name)
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// under tells whether a path is the directory or below it.
func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// roomOf returns the longest room of the table that holds a directory.
func roomOf(dir string) (room string, ok bool) {
	for _, r := range slices.Sorted(maps.Keys(mayImport)) {
		if under(dir, r) && len(r) > len(room) {
			room, ok = r, true
		}
	}
	return room, ok
}

// forbidden returns the imports of a file of a room that the table does not allow.
func forbidden(s source, room string) []string {
	var bad []string
	for _, name := range s.imports {
		first, _, _ := strings.Cut(name, "/")
		if !strings.Contains(first, ".") || under(name, fx) {
			continue // the standard library; fx has its own rule
		}
		local := strings.TrimPrefix(name, module+"/")
		allowed := local != name && under(local, room) || slices.ContainsFunc(mayImport[room], func(a string) bool {
			return a == anything || under(local, a)
		})
		if !allowed {
			bad = append(bad, name)
		}
	}
	return bad
}

func TestImportsFollowTheTable(t *testing.T) {
	seen := 0
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		room, ok := roomOf(s.dir)
		if !ok {
			t.Errorf("%s/%s is in no room of the import table", s.dir, s.file)
			continue
		}
		seen++
		for _, name := range forbidden(s, room) {
			t.Errorf("%s/%s imports %s, which %s may not", s.dir, s.file, name, room)
		}
	}
	if seen < 50 {
		t.Errorf("only %d files were looked at", seen)
	}
}

func TestOnlyModuleFilesImportFx(t *testing.T) {
	for _, s := range sources(t) {
		free := s.isTest() || s.file == "module.go" || under(s.dir, "coordfx") || under(s.dir, "examples")
		if !free && slices.ContainsFunc(s.imports, func(name string) bool { return under(name, fx) }) {
			t.Errorf("%s/%s imports fx: only module.go wires", s.dir, s.file)
		}
	}
}

func TestLibrariesForTestsStayOutOfUsersPrograms(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || under(s.dir, "testkit") || under(s.dir, "examples") {
			continue
		}
		for _, name := range s.imports {
			if name == "testing" || under(name, miniredis) || under(name, module+"/testkit") || under(name, "go.uber.org/goleak") {
				t.Errorf("%s/%s imports %s: it would be in every user's program", s.dir, s.file, name)
			}
		}
	}
}

func TestTheHouseHasNoOtherRooms(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(rooms, e.Name()) {
			t.Errorf("%s is not a room of the house", e.Name())
		}
	}
}

// TestTestsDoNotSleep: a test waits for an event, moves a clock, polls in a loop with a
// bound, or runs in a synctest bubble, where sleeping takes no time. A call that must
// sleep says why: //nolint:forbidigo // reason.
func TestTestsDoNotSleep(t *testing.T) {
	for _, s := range sources(t) {
		if !s.isTest() || slices.Contains(s.imports, "testing/synctest") {
			continue
		}
		p := filepath.Join(s.dir, s.file)
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, p, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		excused := map[int]bool{}
		for _, group := range f.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//nolint:forbidigo // ") {
					excused[files.Position(c.Pos()).Line] = true
				}
			}
		}
		for _, pos := range sleeps(f) {
			if line := files.Position(pos).Line; !excused[line] {
				t.Errorf("%s:%d sleeps: wait for an event, move a clock, or poll with a bound", p, line)
			}
		}
	}
}

// sleeps returns the calls of time.Sleep outside loops.
func sleeps(n ast.Node) []token.Pos {
	var found []token.Pos
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return false
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// TestTheTableBites shows that the rules can fail.
func TestTheTableBites(t *testing.T) {
	for _, c := range []struct {
		dir, imports string
		allowed      bool
	}{
		{"semantic", "context", true},
		{"semantic", zap, false},
		{"semantic", module + "/observability", false},
		{"semantic/operation", module + "/semantic", false},
		{"semantic/nearcache", localCache, true},
		{"observability", module + "/semantic", false},
		{"observability", zap + "/zapcore", true},
		{"redismodule/internal/conn", redisClient, true},
		{"redismodule", module + "/mongolog", false},
		{"redismodule", mongoDriver + "/bson", false},
		{"mongolog", redisClient, false},
		{"sqsfanout", awsSDK + "/service/sqs", true},
		{"cronfx", awsSDK + "/service/sqs", false},
		{"cronfx", module + "/coordfx", false},
		{"testkit", module + "/redismodule", false},
		{"testkit/internal/resp", redisClient, false},
		{"coordfx", redisClient, false},
		{"coordfx", module + "/testkit", false},
		{"examples/quickstart", module + "/testkit", true},
	} {
		room, ok := roomOf(c.dir)
		if !ok {
			t.Fatalf("no room for %s", c.dir)
		}
		bad := forbidden(source{dir: c.dir, imports: []string{c.imports}}, room)
		if allowed := len(bad) == 0; allowed != c.allowed {
			t.Errorf("%s importing %s: allowed = %v, want %v", c.dir, c.imports, allowed, c.allowed)
		}
	}
	if under("semantic2", "semantic") || !under("semantic/x", "semantic") {
		t.Error("a room's name is taken for a prefix of another's")
	}
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
		func bad() { go func() { time.Sleep(d) }() }
		func poll() { for { time.Sleep(d) } }
		var advance = time.Sleep`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(sleeps(f)); got != 1 {
		t.Errorf("found %d sleeping calls, want 1", got)
	}
}
