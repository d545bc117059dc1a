package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap/zapcore"

	"github.com/wrkbelt/coord/observability"
)

// CheckEmitted compares the catalog with the lines that a run of all tests has recorded
// in a directory (testkit.RecordSignals). Every signal was emitted; every line is of a
// signal of the catalog, with its level, its fields and their kinds, and matched by its
// own filter pattern. Fields of the logger's own may be there too. And no test outside
// this room has called a method of Signals itself: what was recorded was provoked.
func (t Tree) CheckEmitted(root, dir string) (problems []Problem, lines int, err error) {
	r := Report{checker: "emitted"}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, 0, err
	}
	emitted := map[observability.Key]bool{}
	wrong := map[string]bool{} // each mistake once, however often it was written
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, 0, err
		}
		s := bufio.NewScanner(bytes.NewReader(text))
		s.Buffer(nil, 16<<20) // a panic's stack is long
		for s.Scan() {
			lines++
			key, fault := t.emittedLine(s.Bytes())
			if fault == "" {
				emitted[key] = true
			} else if !wrong[string(key)+fault] {
				wrong[string(key)+fault] = true
				r.add(key, "%s: %.300s", fault, s.Bytes())
			}
		}
		if err := s.Err(); err != nil {
			return nil, 0, err
		}
	}
	for _, s := range t.Catalog {
		if !emitted[s.Key] {
			r.add(s.Key, "no test has made the code emit it: none of %d lines in %s (was a test skipped for want of a server?)", lines, dir)
		}
	}
	calls, err := callsInTests(root)
	if err != nil {
		return nil, 0, err
	}
	for _, c := range calls {
		r.add("", "%s: a test calls %s itself: provoke the signal", c.at, c.text)
	}
	return r.problems, lines, nil
}

// emittedLine reads one line and says what is wrong with it.
func (t Tree) emittedLine(line []byte) (observability.Key, string) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return "", err.Error()
	}
	at := fields // where the signal's own fields are
	text, _ := fields[observability.EventField].(string)
	if text == "" {
		for _, v := range fields {
			if nested, ok := v.(map[string]any); ok && nested[observability.EventField] != nil {
				at = nested
				text, _ = nested[observability.EventField].(string)
			}
		}
	}
	key := observability.Key(text)
	s, ok := t.entry(key)
	if !ok {
		return key, "is not in the catalog"
	}
	// One signal says that no pattern can match its line.
	matched := Pattern{observability.EventField, text}.Match(line)
	if hidden := key == observability.LoggerHidesEvent; matched == hidden {
		return key, fmt.Sprintf("its pattern matches: %v, want %v", matched, !hidden)
	}
	var level zapcore.Level
	name, _ := fields["level"].(string)
	if err := level.UnmarshalText([]byte(name)); err != nil || level != s.Level {
		return key, fmt.Sprintf("its level is %q, want %v", name, s.Level)
	}
	for _, f := range s.Fields {
		if v, ok := at[f.Name]; !ok || !holds(v, f.Kind) {
			return key, fmt.Sprintf("its field %s is %v, want a %s", f.Name, v, f.Kind)
		}
	}
	return key, ""
}

// holds tells whether a decoded value is of a kind.
func holds(v any, kind observability.Kind) bool {
	text, isText := v.(string)
	number, isNumber := v.(float64)
	switch kind {
	case observability.Text, observability.Failure:
		return isText
	case observability.Number, observability.Millis:
		return isNumber && number == float64(int64(number)) && number >= 0
	case observability.Instant:
		return isText && text != "" || isNumber && number > 0
	}
	return false
}

// callsInTests returns where test files outside the catalog's room select a method of
// Signals. It goes by the methods' names, which are no one else's.
func callsInTests(root string) (calls []found, err error) {
	methods := methodKeys()
	files := token.NewFileSet()
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root && (strings.HasPrefix(name, ".") || name == "testdata" || p == filepath.Join(root, "observability")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(files, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || methods[sel.Sel.Name] == "" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "observability" { // a key's constant
				calls = append(calls, found{sel.Sel.Name, files.Position(sel.Pos())})
			}
			return true
		})
		return nil
	})
	if err == nil && len(methods) == 0 {
		err = errors.New("no method of Signals is known")
	}
	return calls, err
}
