package coordfx_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"testing/fstest"
)

// imports returns what the Go files under a directory import, by file.
func imports(t *testing.T, root fs.FS) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) != ".go" {
			return err
		}
		source, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		all[p] = nil
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			all[p] = append(all[p], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// driverImports says which files import a Redis driver. A service may have a database of
// its own.
func driverImports(imports map[string][]string) []string {
	driver := regexp.MustCompile(redisDriver)
	var found []string
	for _, file := range slices.Sorted(maps.Keys(imports)) {
		for _, name := range imports[file] {
			if driver.MatchString(name + "/") {
				found = append(found, file+" imports "+name)
			}
		}
	}
	return found
}

func TestExamplesImportNoDriver(t *testing.T) {
	all := imports(t, os.DirFS("../examples"))
	if len(all) < 5 {
		t.Errorf("only %d files were looked at", len(all))
	}
	for _, found := range driverImports(all) {
		t.Error(found)
	}
}

func TestADriverInAnExampleTurnsTheImportTestRed(t *testing.T) {
	for _, name := range []string{
		"github.com/redis/go-redis/v9", "github.com/go-redis/redis/v8", "github.com/go-redis/cache/v9",
		"github.com/go-redis/redis_rate/v10", "github.com/redis/rueidis", "github.com/gomodule/redigo/redis",
		"github.com/valkey-io/valkey-go", "github.com/mediocregopher/radix/v4", "github.com/go-redsync/redsync/v4",
		"github.com/bsm/redislock", "github.com/hibiken/asynq", "gopkg.in/redis.v5",
	} {
		planted := fstest.MapFS{"service/job.go": {Data: []byte("package service\n\nimport _ \"" + name + "\"\n")}}
		if found := driverImports(imports(t, planted)); len(found) != 1 {
			t.Errorf("an import of %s is not seen: %q", name, found)
		}
	}
	clean := fstest.MapFS{"main.go": {Data: []byte("package main\n\nimport _ \"github.com/wrkbelt/coord/redismodule\"\n")}}
	if found := driverImports(imports(t, clean)); len(found) != 0 {
		t.Errorf("found in a clean program: %q", found)
	}
}
