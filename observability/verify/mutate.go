package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/wrkbelt/coord/observability/internal/render"
)

// Mutation is one thing taken out of the tree that some check must miss.
type Mutation struct {
	Name string
	// Tree is the tree without it. Err tells that it could not be made.
	Tree Tree
	Err  error
	// changed is what is taken out of: a generated file, the code, or the catalog.
	changed string
}

// Check runs the checks of what has changed. The others have nothing new to say.
func (m Mutation) Check() []Problem {
	return m.Tree.check(func(c Checker) bool { return m.changed == theCatalog || m.changed == c.reads })
}

// theCatalog is what every checker reads.
const theCatalog = "the catalog"

// Mutations takes out each place that emits, each entry of the catalog, each alarm of
// the catalog, and each filter, alarm, rule, panel and runbook part that was generated,
// one at a time. The files are changed in memory, as an overlay.
func (t Tree) Mutations() ([]Mutation, error) {
	var all []Mutation
	for _, s := range t.Code.Sites() {
		m := Mutation{Name: fmt.Sprintf("emit %s in %s", s.Key, s.In), Tree: t, changed: theCode}
		m.Tree.Code, m.Err = t.Code.without(s)
		all = append(all, m)
	}
	for i, s := range t.Catalog {
		m := Mutation{Name: fmt.Sprintf("entry %s", s.Key), Tree: t, changed: theCatalog}
		m.Tree.Catalog = slices.Delete(slices.Clone(t.Catalog), i, i+1)
		all = append(all, m)
		if s.Alarm != nil {
			m := Mutation{Name: fmt.Sprintf("alarm of the entry %s", s.Key), Tree: t, changed: theCatalog}
			m.Tree.Catalog = slices.Clone(t.Catalog)
			m.Tree.Catalog[i].Alarm, m.Tree.Catalog[i].Waiver = nil, "nobody looks"
			all = append(all, m)
		}
	}
	for _, part := range []struct {
		what, file string
		begin      *regexp.Regexp // the first line of a part
		next       *regexp.Regexp // the first line after it
	}{
		{"", render.CloudFormation, regexp.MustCompile(`^  (\w+(?:Filter|Alarm)):$`), regexp.MustCompile(`^  \w`)},
		{"rule ", render.Prometheus, regexp.MustCompile(`^      - alert: (\w+)$`), regexp.MustCompile(`^      - `)},
		{"runbook part ", render.Runbook, regexp.MustCompile(`^## (.+)$`), regexp.MustCompile(`^## `)},
	} {
		for name, text := range withoutEach(string(t.Files[part.file]), part.begin, part.next) {
			all = append(all, t.withFile(part.what+name, part.file, []byte(text)))
		}
	}
	panels, err := withoutPanels(t.Files[render.Dashboard])
	if err != nil {
		return nil, err
	}
	for name, text := range panels {
		all = append(all, t.withFile("panel "+name, render.Dashboard, text))
	}
	slices.SortStableFunc(all, func(a, b Mutation) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (t Tree) withFile(name, file string, text []byte) Mutation {
	m := Mutation{Name: name, Tree: t, changed: file}
	m.Tree.Files = maps.Clone(t.Files)
	m.Tree.Files[file] = text
	return m
}

// without is the code without one site: a call becomes one of a function that does
// nothing, a method value becomes nil.
func (c *Code) without(s Site) (*Code, error) {
	file := s.pkg.Fset.File(s.expr.Pos())
	text, err := os.ReadFile(file.Name())
	if err != nil {
		return nil, err
	}
	nothing := "nil"
	if s.call {
		nothing = "func(...any) {}"
	}
	from, to := file.Offset(s.expr.Pos()), file.Offset(s.expr.End())
	return c.With(s.pkg.Path, file.Name(), slices.Concat(text[:from], []byte(nothing), text[to:]))
}

// withoutEach returns a text without each of its parts, by the part's name.
func withoutEach(text string, begin, next *regexp.Regexp) map[string]string {
	lines := strings.SplitAfter(text, "\n")
	all := map[string]string{}
	for i, line := range lines {
		m := begin.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		end := i + 1
		for end < len(lines) && !next.MatchString(strings.TrimSuffix(lines[end], "\n")) {
			end++
		}
		all[m[1]] = strings.Join(slices.Concat(lines[:i], lines[end:]), "")
	}
	return all
}

// withoutPanels returns a dashboard without each of its signals' panels.
func withoutPanels(text []byte) (map[string][]byte, error) {
	var board map[string]any
	if err := json.Unmarshal(text, &board); err != nil {
		return nil, err
	}
	panels, ok := board["panels"].([]any)
	if !ok {
		return nil, fmt.Errorf("panels of the dashboard are %T", board["panels"])
	}
	all := map[string][]byte{}
	for i, p := range panels {
		if panel, _ := p.(map[string]any); panel["type"] != "row" {
			less := maps.Clone(board)
			less["panels"] = slices.Delete(slices.Clone(panels), i, i+1)
			changed, err := json.Marshal(less)
			if err != nil {
				return nil, err
			}
			all[fmt.Sprint(panel["title"])] = changed
		}
	}
	return all, nil
}
